"""Schemas of services as JSON Schema: from a worker's annotations, or from the settings for workers without any."""

import json
import re
from typing import Final

from polydomo.limits import MAX_SCHEMA, MAX_SCHEMA_MEDIA, MAX_SCHEMA_TEXT

JSON_ENCODING: Final = "json"  # the request is a JSON object of arguments, the reply is JSON
BYTES_ENCODING: Final = "bytes"  # the request is a JSON object of arguments, the reply is bytes
TEXT_ENCODING: Final = "text"  # request and reply are text, for a service without a schema
ENCODINGS: Final = (JSON_ENCODING, BYTES_ENCODING, TEXT_ENCODING)

Row = dict[str, object]

_MEDIA: Final = re.compile(r"[a-z]+/[a-z0-9][a-z0-9.+-]*(; ?charset=[a-z0-9-]+)?")

TEXT_INPUT: Final = {
    "type": "object",
    "properties": {"body": {"type": "string", "description": "The request, as text."}},
    "required": ["body"],
    "additionalProperties": False,
}


class ServiceSchema:
    """One service's schema. The schemas of arguments and results are kept as JSON text, which takes a tenth of their memory as objects,
    and from which pages are put together."""

    __slots__ = ("described", "description", "encoding", "input_text", "media", "output_text", "streams")

    def __init__(
        self,
        description: str,
        input_: Row,
        output: Row,
        encoding: str = JSON_ENCODING,
        streams: bool = False,
        media: "tuple[str, ...]" = (),
    ) -> None:
        self.description = description
        self.input_text = json.dumps(input_, separators=(",", ":"))  # schema of an object with the arguments by name
        self.output_text = json.dumps(output, separators=(",", ":"))  # {} if the reply is not JSON
        self.encoding = encoding
        self.streams = streams  # it sends partial replies
        self.media = media  # it changes nothing and may be called with GET: the media types that it can reply with
        self.described = ""  # its entry in the OpenAPI document, once it has been built

    @property
    def input(self) -> Row:
        found: Row = json.loads(self.input_text)
        return found

    @property
    def output(self) -> Row:
        found: Row = json.loads(self.output_text)
        return found

    @property
    def has_output(self) -> bool:
        return self.output_text != "{}"

    def memory(self) -> int:
        """Bytes of its texts."""
        return len(self.description) + len(self.input_text) + len(self.output_text) + len(self.described)

    def text(self, service: str) -> str:
        """As JSON."""
        found: Row = {
            "service": service,
            "description": self.description,
            "encoding": self.encoding,
            "streams": self.streams,
        }
        if self.media:
            found["media"] = list(self.media)
        return f'{json.dumps(found)[:-1]}, "input": {self.input_text}, "output": {self.output_text}}}'


def described(text: str) -> ServiceSchema:
    """The schema of a service described only in the settings: text in, text out."""
    return ServiceSchema(text, dict(TEXT_INPUT), {}, TEXT_ENCODING)


def read_schema(row: object, size: int) -> ServiceSchema:
    """Parses the schema that a worker sent. Raises ValueError with a reason."""
    if size > MAX_SCHEMA:
        raise ValueError(f"the schema has {size} bytes; the limit is {MAX_SCHEMA}")
    if not isinstance(row, dict):
        raise ValueError("a schema must be an object")
    description, input_, output = row.get("description", ""), row.get("input", {}), row.get("output", {})
    encoding, streams = row.get("encoding", JSON_ENCODING), row.get("streams", False)
    if not isinstance(description, str) or len(description) > MAX_SCHEMA_TEXT:
        raise ValueError(f"description must be a string of at most {MAX_SCHEMA_TEXT} characters")
    if not isinstance(input_, dict) or input_.get("type") != "object":
        raise ValueError('input must be a JSON Schema with "type": "object"')
    if not isinstance(output, dict):
        raise ValueError("output must be a JSON Schema")
    if encoding not in ENCODINGS or not isinstance(streams, bool):
        raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, and streams true or false")
    media = row.get("media", [])
    if not isinstance(media, list) or len(media) > MAX_SCHEMA_MEDIA or not all(_is_media_type(one) for one in media):
        raise ValueError(f"media must be a list of at most {MAX_SCHEMA_MEDIA} media types, such as text/csv")
    return ServiceSchema(description, input_, output, encoding, streams, tuple(media))


def _is_media_type(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 100 and _MEDIA.fullmatch(value) is not None
