"""Named arguments of a call: ``client.call("add", a=1, b=2)`` sends them as one JSON object, which is the request of a typed service."""

from collections.abc import Mapping
from typing import Any

import msgspec

from polydomo.client.message import Frame, encode


def frames_of(body: tuple[Frame, ...], arguments: Mapping[str, object]) -> list[bytes]:
    """The frames of a request that has a body or named arguments. Raises TypeError if it has both.

    >>> frames_of(("one", b"two"), {}), frames_of((), {"a": 1, "b": "x"})
    ([b'one', b'two'], [b'{"a":1,"b":"x"}'])
    """
    if not arguments:
        return encode(body)
    if body:
        names = ", ".join(arguments)
        raise TypeError(
            f"the call has a body and the named arguments {names}; use one of them, or correct the name of an option"
        )
    try:
        return [msgspec.json.encode(arguments, enc_hook=_other)]
    except TypeError as error:
        raise TypeError(f"the arguments cannot be written as JSON: {error}") from None


def _other(value: Any) -> Any:
    """Values that msgspec does not know: pydantic models."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a {type(value).__name__} has no JSON form")
    return dump(mode="json")
