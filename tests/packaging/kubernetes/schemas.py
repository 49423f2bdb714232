"""Kubernetes's own schemas of the kinds that packaging/kubernetes uses, one file per release of Kubernetes.

``python -m tests.packaging.kubernetes.schemas`` writes the files anew from the package kubernetes-validate, which has the schemas of every
kind and release in 17,000 files and therefore is not installed for the tests. A schema has no properties but those listed (the form
"strict"), and no descriptions. They are generated from the OpenAPI document of Kubernetes (Apache License 2.0).
"""

import importlib.util
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

PLACE = Path(__file__).parent
RELEASES = ("1.28", "1.32")
KINDS = (
    "deployment-apps-v1",
    "networkpolicy-networking-v1",
    "poddisruptionbudget-policy-v1",
    "service-v1",
    "statefulset-apps-v1",
)
PREFIX = "/api/_definitions.json#/$defs/"


@cache
def schemas(release: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PLACE / f"{release}.json").read_text())
    return found


def validate(manifest: dict[str, Any], release: str) -> None:
    """Raises ``jsonschema.ValidationError`` if a cluster of this release would refuse the manifest's form."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    kind = "-".join(filter(None, (manifest["kind"].lower(), group.partition(".")[0], version)))
    schema = {"$defs": schemas(release), "$ref": f"#/$defs/{kind}"}
    jsonschema.Draft202012Validator(schema).validate(manifest)


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for part in schema.values():
            yield from references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from references(part)


def shortened(schema: Any) -> Any:
    """Without descriptions, and with references to where ``validate`` has the definitions."""
    if isinstance(schema, dict):
        return {
            name: part.replace(PREFIX, "#/$defs/") if name == "$ref" and isinstance(part, str) else shortened(part)
            for name, part in schema.items()
            if not (name == "description" and isinstance(part, str)) and name not in ("$id", "$schema")
        }
    return [shortened(part) for part in schema] if isinstance(schema, list) else schema


def write(release: str) -> None:
    package = importlib.util.find_spec("kubernetes_validate")
    assert package is not None and package.origin is not None, "pip install kubernetes-validate"
    place = Path(package.origin).parent / "kubernetes-json-schema" / f"v{release}.0-local-strict"
    definitions = json.loads((place / "_definitions.json").read_text())["$defs"]
    kept: dict[str, Any] = {kind: json.loads((place / f"{kind}.json").read_text()) for kind in KINDS}
    waiting = list(kept.values())
    while waiting:
        for name in references(waiting.pop()):
            if name not in kept:
                kept[name] = definitions[name]
                waiting.append(kept[name])
    lines = (f"{json.dumps(name)}:{json.dumps(shortened(kept[name]), separators=(',', ':'))}" for name in sorted(kept))
    (PLACE / f"{release}.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    for release in RELEASES:
        write(release)
