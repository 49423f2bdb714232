"""What a service takes and gives, as JSON Schemas: from a worker's annotations, or from one line of settings for a worker that has none."""

from typing import Final

from polydomo.limits import MAX_SCHEMA, MAX_SCHEMA_TEXT

JSON_ENCODING: Final = "json"  # the request is a JSON object of arguments, the reply is JSON
BYTES_ENCODING: Final = "bytes"  # the request is a JSON object of arguments, the reply is bytes
TEXT_ENCODING: Final = "text"  # request and reply are text: a service that knows nothing of schemas
ENCODINGS: Final = (JSON_ENCODING, BYTES_ENCODING, TEXT_ENCODING)

Row = dict[str, object]

TEXT_INPUT: Final = {
    "type": "object",
    "properties": {"body": {"type": "string", "description": "The request, as text."}},
    "required": ["body"],
    "additionalProperties": False,
}


class ServiceSchema:
    """One service's schema."""

    __slots__ = ("description", "encoding", "input", "output", "streams")

    def __init__(
        self, description: str, input_: Row, output: Row, encoding: str = JSON_ENCODING, streams: bool = False
    ) -> None:
        self.description = description
        self.input = input_  # of an object: the arguments by name
        self.output = output  # {} where the reply is not JSON
        self.encoding = encoding
        self.streams = streams  # it sends partial replies

    def row(self, service: str) -> Row:
        return {
            "service": service,
            "description": self.description,
            "input": self.input,
            "output": self.output,
            "encoding": self.encoding,
            "streams": self.streams,
        }


def described(text: str) -> ServiceSchema:
    """The schema of a service that was described by settings only: text in, text out."""
    return ServiceSchema(text, dict(TEXT_INPUT), {}, TEXT_ENCODING)


def read_schema(row: object, size: int) -> ServiceSchema:
    """From what a worker sends. Raises ValueError with a reason."""
    if size > MAX_SCHEMA:
        raise ValueError(f"the schema has {size} bytes; the limit is {MAX_SCHEMA}")
    if not isinstance(row, dict):
        raise ValueError("a schema is an object")
    description, input_, output = row.get("description", ""), row.get("input", {}), row.get("output", {})
    encoding, streams = row.get("encoding", JSON_ENCODING), row.get("streams", False)
    if not isinstance(description, str) or len(description) > MAX_SCHEMA_TEXT:
        raise ValueError(f"description must be a text of at most {MAX_SCHEMA_TEXT} characters")
    if not isinstance(input_, dict) or input_.get("type") != "object":
        raise ValueError('input must be a JSON Schema with "type": "object"')
    if not isinstance(output, dict):
        raise ValueError("output must be a JSON Schema")
    if encoding not in ENCODINGS or not isinstance(streams, bool):
        raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, and streams true or false")
    return ServiceSchema(description, input_, output, encoding, streams)
