"""MemoDB JSON (docs/memodb/json.md of bcdb): Nodes as unambiguous text. The output is deterministic."""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from polydomo.limits import LISTED, MAX_NODE_DEPTH
from polydomo.protocols.memo.cid import Cid, CidError, parse_cid
from polydomo.protocols.memo.node import LEAST, MOST, Node, NodeError, ordered

SPECIAL_FLOATS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
NUMBER_CHARACTERS: Final = frozenset("0123456789+-.eE")
MAX_INTEGER_TEXT: Final = 20  # characters of -9223372036854775808 and of 18446744073709551615

FIRST_SURROGATE: Final = 0xD800
LAST_SURROGATE: Final = 0xDFFF

KINDS: Final = ("float", "base64", "cid", "map")
HOW: Final = (
    'write a map as {"map": {"key": 1}}, a float as {"float": "1.5"}, bytes as {"base64": "AQI="}, '
    'a link as {"cid": "uAXEAAQI"}'
)

Expand = Callable[[Cid], "tuple[bool, Node]"]  # (known, Node) for a link


# --- writing ---------------------------------------------------------------------------------------------------------------


def to_json(node: Node, expand: Expand | None = None, depth: int = 0) -> str:
    """``expand`` and ``depth``: links up to this depth are written as {"node": ...} if their Node is known (``?depth=N``)."""
    out: list[str] = []
    _write(node, out, expand, depth)
    return "".join(out)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _write(node: Node, out: "list[str]", expand: Expand | None, depth: int) -> None:
    if node is None:
        out.append("null")
    elif isinstance(node, bool):
        out.append("true" if node else "false")
    elif isinstance(node, int):
        out.append(str(node))
    elif isinstance(node, float):
        out.append(f'{{"float":"{float_text(node)}"}}')
    elif isinstance(node, str):
        out.append(_text(node))
    elif isinstance(node, bytes):
        out.append(f'{{"base64":"{b64encode(node).decode()}"}}')
    elif isinstance(node, Cid):
        known, linked = expand(node) if expand is not None and depth > 0 else (False, None)
        if known:
            out.append('{"node":')
            _write(linked, out, expand, depth - 1)
            out.append("}")
        else:
            out.append(f'{{"cid":"{node.text()}"}}')
    elif isinstance(node, list):
        out.append("[")
        for i, item in enumerate(node):
            if i:
                out.append(",")
            _write(item, out, expand, depth)
        out.append("]")
    else:
        out.append('{"map":{')
        for i, (_, name) in enumerate(ordered(node)):
            if i:
                out.append(",")
            out.append(_text(name) + ":")
            _write(node[name], out, expand, depth)
        out.append("}}")


def float_text(value: float) -> str:
    """A JSON number that parses as the same float, or NaN, Infinity, -Infinity."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = repr(value)
    return text[:-2] if text.endswith(".0") else text


# --- reading ---------------------------------------------------------------------------------------------------------------


class _Object:
    """A JSON object as its pairs; their meaning depends on the context."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: "list[tuple[str, object]]") -> None:
        self.pairs = pairs


def from_json(data: bytes) -> Node:
    """Raises NodeError."""
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_Object,
            parse_float=no_fraction,
            parse_int=read_integer,
            parse_constant=no_fraction,
        )
    except NodeError:
        raise
    except UnicodeDecodeError:
        raise NodeError("the JSON is not UTF-8") from None
    except ValueError as error:
        raise NodeError(f"malformed JSON: {error}") from None
    except RecursionError:
        raise NodeError("the JSON is nested too deep") from None
    return _read(value, 0)


def no_fraction(text: str) -> int:
    raise NodeError(f'the number {text[:32]} is not an integer; write a float as {{"float": "{text[:32]}"}}')


def read_integer(text: str) -> int:
    if len(text) <= MAX_INTEGER_TEXT and LEAST <= int(text) <= MOST:
        return int(text)
    raise NodeError(f"the integer {text[:32]} has more than 64 bits")


def _read(value: object, depth: int) -> Node:
    if depth > MAX_NODE_DEPTH:
        raise NodeError(f"the Node is nested more than {MAX_NODE_DEPTH} deep")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _unicode(value)
    if isinstance(value, list):
        return [_read(item, depth + 1) for item in value]
    assert isinstance(value, _Object)
    if len(value.pairs) != 1 or value.pairs[0][0] not in KINDS:
        keys = ", ".join(repr(key[:32]) for key, _ in value.pairs[:LISTED])
        what = (
            f"an object with {'the key' if len(value.pairs) == 1 else 'the keys'} {keys}" if keys else "an empty object"
        )
        raise NodeError(f"{what} is not MemoDB JSON; {HOW}")
    (kind, content), *_ = value.pairs
    if kind == "map" and isinstance(content, _Object):
        found: dict[str, Node] = {}
        for key, item in content.pairs:
            if key in found:
                raise NodeError(f"the map has the key {key[:64]!r} twice")
            found[_unicode(key)] = _read(item, depth + 1)
        return found
    if kind == "map" or not isinstance(content, str):
        raise NodeError(f"the value of {kind!r} has the wrong type; {HOW}")
    if kind == "float":
        return read_float(content)
    if kind == "base64":
        try:
            return b64decode(content, validate=True)
        except ValueError:
            raise NodeError("the value of base64 is not padded base64") from None
    if not content.startswith("u"):
        raise NodeError("a CID in JSON must be base64url")
    try:
        return parse_cid(content)
    except CidError as error:
        raise NodeError(str(error)) from None


def _unicode(text: str) -> str:
    if not text.isascii() and any(FIRST_SURROGATE <= ord(char) <= LAST_SURROGATE for char in text):
        raise NodeError("a string has a lone surrogate")
    return text


def read_float(text: str) -> float:
    if text in SPECIAL_FLOATS:
        return SPECIAL_FLOATS[text]
    try:
        if not NUMBER_CHARACTERS.issuperset(text):
            raise ValueError
        json.loads(text)  # "The string representation will itself be a valid JSON number"
        return float(text)
    except ValueError:
        raise NodeError(f"{text[:32]!r} is not a float") from None
