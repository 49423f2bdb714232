"""Each number lives in one place: ``limits.py``, or one record that a setting fills."""

import ast
import dataclasses
from pathlib import Path

from polydomo.broker.policy import Policy
from polydomo.model.tuning import Tuning
from polydomo.server.settings import sections, settings

# Fields that no setting changes; only tests do.
FIXED = {
    "policy": {"max_unattended"},
    "tuning": {
        "handshake_time",
        "max_handshake",
        "max_frames",
        "beacon_interval",
        "dbp_beat",
        "memo_idle",
        "memo_reconnect",
        "mdx_max_credit",
        "dcp_max_held",
        "emqp_max_slots",
        "bridge_beat",
        "bridge_hops",
        "bridge_patience",
    },
}
SOURCES = Path(settings.__file__).parents[2]


def test_the_core_and_the_protocols_do_not_hold_the_same_setting_twice() -> None:
    core = {field.name for field in dataclasses.fields(Policy)}
    protocols = {field.name for field in dataclasses.fields(Tuning)}
    assert not core & protocols


def test_no_record_of_settings_has_a_number_of_its_own() -> None:
    """A default is a name of ``limits.py``; 0 stands for "not set"."""
    files = ["broker/policy.py", "model/tuning.py", "server/settings/sections.py", "server/settings/settings.py"]
    found = []
    for file in files:
        for default in _defaults(ast.parse((SOURCES / file).read_text())):
            if isinstance(default, ast.Constant) and type(default.value) in (int, float) and default.value != 0:
                found.append(f"{file}:{default.lineno}: {default.value!r}")
    assert not found


def test_every_field_of_the_core_and_the_protocols_can_be_set_or_is_fixed() -> None:
    """A field that no setting fills keeps its default for ever, and no user can change it: that must be intended."""
    plain = settings.Settings()
    for name, record in (("policy", Policy), ("tuning", Tuning)):
        tree = ast.parse(Path(settings.__file__).read_text())
        method = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)
        given = {word.arg for call in ast.walk(method) if isinstance(call, ast.Call) for word in call.keywords}
        assert {field.name for field in dataclasses.fields(record)} - given == FIXED[name]
    assert plain.policy().max_message == plain.limits.max_message
    assert sections.LimitsSection().max_message == plain.limits.max_message


def _defaults(tree: ast.Module) -> list[ast.expr]:
    """The default of each field of a class: what is assigned, or the first argument of ``setting()``."""
    found: list[ast.expr] = []
    for cls in tree.body:
        if isinstance(cls, ast.ClassDef):
            for node in cls.body:
                if isinstance(node, ast.AnnAssign) and node.value is not None:
                    value = node.value
                    is_setting = isinstance(value, ast.Call) and getattr(value.func, "id", "") == "setting"
                    found.append(value.args[0] if is_setting and isinstance(value, ast.Call) else value)
    assert found
    return found
