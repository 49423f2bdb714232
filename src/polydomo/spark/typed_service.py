"""The schema of a typed service as columns, for ``through`` without a schema."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polydomo.client.blocking import Client
from polydomo.errors import PolydomoError, SettingError
from polydomo.model.service_schema import BYTES_ENCODING, JSON_ENCODING
from polydomo.spark.concurrent_calls import Target
from polydomo.spark.row_bodies import BYTES, JSON, VALUE

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Row = dict[str, Any]

RESULT = "result"  # the column of a reply that is not an object
NO_SCHEMA = "schema: list the columns of the replies of `{}`, such as schema='id BIGINT, score DOUBLE'{}"


@dataclass(frozen=True)
class TypedService:
    """Arguments and columns of a service that has a schema."""

    arguments: tuple[str, ...]
    required: tuple[str, ...]
    is_object: bool  # the request is a JSON object of arguments, not the text itself
    columns: "StructType"
    reply: str

    @staticmethod
    def ask(target: Target, service: str) -> "TypedService":
        """Reads the schema from the broker. Raises SettingError if the service has none or the broker does not answer."""
        try:
            with Client(target.to, target.protocol, timeout=target.timeout, **target.options) as client:
                found = client.call("polydomo.schema", service).json()
        except (PolydomoError, ValueError) as error:
            raise SettingError(NO_SCHEMA.format(service, f"; the broker did not return one: {error}")) from None
        if not isinstance(found, dict):
            raise SettingError(NO_SCHEMA.format(service, "; the service has no schema, or no worker offers it now"))
        return of(service, found)

    def body(self, given: "tuple[str, ...] | None", columns: "list[str]") -> tuple[str, ...]:
        """The columns that are sent as arguments. Raises SettingError if a required one is missing."""
        if not self.is_object:
            if given is None:
                raise SettingError("body: name the column to send; the service takes text")
            return given
        chosen = tuple(name for name in self.arguments if name in columns) if given is None else given
        missing = [name for name in self.required if name not in chosen]
        if missing:
            raise SettingError(
                f"the service needs the argument {missing[0]!r}; the DataFrame has no such column in body"
            )
        unknown = [name for name in chosen if name not in self.arguments]
        if unknown:
            raise SettingError(
                f"body: the service has no argument {unknown[0]!r}; it has {', '.join(self.arguments) or 'none'}"
            )
        return chosen


def of(service: str, row: Row) -> TypedService:
    """From an answer of ``polydomo.schema``."""
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    if row["streams"]:
        raise SettingError(NO_SCHEMA.format(service, "; it sends partial replies, whose columns are not in its schema"))
    arguments, required = tuple(row["input"].get("properties", {})), tuple(row["input"].get("required", ()))
    if row["encoding"] != JSON_ENCODING:
        kind: DataType = BinaryType() if row["encoding"] == BYTES_ENCODING else StringType()
        is_object = row["encoding"] == BYTES_ENCODING
        return TypedService(arguments, required, is_object, StructType([StructField(RESULT, kind)]), BYTES)
    output = Types(row["output"].get("$defs", {}))
    columns = output.columns(row["output"])
    if columns is not None:
        return TypedService(arguments, required, True, columns, JSON)
    single = StructType([StructField(RESULT, output.type_of(row["output"], top=True))])
    return TypedService(arguments, required, True, single, VALUE)


class Types:
    """Spark types for JSON Schemas. A schema without a matching type becomes text: the value as JSON."""

    def __init__(self, definitions: Row) -> None:
        self._definitions = definitions

    def columns(self, schema: Row) -> "StructType | None":
        """The properties of an object, each as a column. None for other types."""
        from pyspark.sql.types import StructField, StructType

        found = self._resolved(schema)
        if found is None or not found.get("properties"):
            return None
        return StructType(
            [StructField(name, self.type_of(part, top=True), True) for name, part in found["properties"].items()]
        )

    def type_of(self, schema: Row, top: bool = False, depth: int = 0) -> "DataType":
        """``top``: the type of a whole column. Times inside lists and objects stay text."""
        from pyspark.sql import types

        found = self._resolved(schema)
        if found is None or depth > 8:  # a choice of several types, or a recursive type
            return types.StringType()
        kind = found.get("type")
        if kind == "integer":
            return types.LongType()
        if kind == "number":
            return types.DoubleType()
        if kind == "boolean":
            return types.BooleanType()
        if kind == "string" and top:
            if found.get("contentEncoding") == "base64":
                return types.BinaryType()
            formats = {"date-time": types.TimestampType(), "date": types.DateType()}
            return formats.get(found.get("format", ""), types.StringType())
        if kind == "array" and isinstance(found.get("items"), dict):
            return types.ArrayType(self.type_of(found["items"], depth=depth + 1))
        if kind == "object" and found.get("properties"):
            inner = found["properties"].items()
            return types.StructType(
                [types.StructField(name, self.type_of(part, depth=depth + 1), True) for name, part in inner]
            )
        if kind == "object" and isinstance(found.get("additionalProperties"), dict):
            return types.MapType(types.StringType(), self.type_of(found["additionalProperties"], depth=depth + 1))
        return types.StringType()

    def _resolved(self, schema: Row) -> Row | None:
        """Resolves references and removes null; None if several types are left."""
        found: Row | None = schema
        for _ in range(8):
            if found is None:
                return None
            if "$ref" in found:
                found = self._definitions.get(str(found["$ref"]).rpartition("/")[2])
                continue
            choices = found.get("anyOf") or found.get("oneOf")
            if choices is None:
                kind = found.get("type")
                if isinstance(kind, list):
                    kinds = [one for one in kind if one != "null"]
                    return {**found, "type": kinds[0]} if len(kinds) == 1 else None
                if kind is None and "enum" in found and all(isinstance(one, str) for one in found["enum"]):
                    return {"type": "string"}
                return found
            left = [one for one in choices if one.get("type") != "null"]
            found = left[0] if len(left) == 1 else None
        return None
