"""Values of the command line that need no validation.

Typer validates every value with pydantic, a text and an absent option too. Importing pydantic and building its validators takes a
quarter of the CPU time of a short command such as ``polydomo services``. Most values are texts, flags, defaults or absent: they are
passed on as they are, and pydantic is imported only for the others.
"""

from typing import Any


def pass_plain(params: Any) -> Any:
    """Makes the parameters take plain values without typer's validation. Other values are validated as before."""
    for param in params:
        if "process_value" not in vars(param):
            param.process_value = Plain(param)
    return params


class Plain:
    """Replaces ``process_value`` of one parameter: converts its value, and calls its callback."""

    def __init__(self, param: Any) -> None:
        self.param = param
        self.validated = param.process_value  # typer's own conversion
        described = getattr(param, "type_descriptor", None)  # absent before typer 0.29, which did not need pydantic
        info = getattr(described, "parameter_info", None)
        self.kind = getattr(described, "annotation", None)
        self.parser = getattr(info, "parser", None)
        self.several = param.nargs != 1 or getattr(param, "multiple", False)
        self.special = any(getattr(described, name, True) for name in ("is_path", "is_choice", "is_file"))

    def __call__(self, ctx: Any, value: Any) -> Any:
        if not self.is_plain(value):
            return self.validated(ctx, value)
        if self.parser is not None and isinstance(value, str):
            value = self.parser(value)
        elif self.several:
            value = value or ()
        return value if self.param.callback is None else self.param.callback(ctx, self.param, value)

    def is_plain(self, value: Any) -> bool:
        if self.special:
            return False
        if self.several:
            return self.is_list_of_texts(value)
        if value is None:
            return not self.param.required
        if isinstance(value, str):
            return self.parser is not None or self.kind is str
        return type(value) is self.kind and (self.kind is bool or value == self.param.default)

    def is_list_of_texts(self, value: Any) -> bool:
        if value is None or value == ():
            return not self.param.required
        if self.kind != list[str] or self.parser is not None or not isinstance(value, list | tuple):
            return False
        return all(type(each) is str for each in value)
