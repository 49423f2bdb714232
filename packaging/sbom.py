"""The software bill of materials of a release: CycloneDX 1.6 in JSON, from constraints.txt.

It lists what polydomo needs at run time. What only an extra needs has the scope ``optional``, and the property
``polydomo:extras`` names the extras. Tools of tests and of the documentation are left out: they are not part of what users run.
"""

import json
import uuid
from typing import Any

from constraints import Pin, normal

NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "pkg:pypi/polydomo")
RUNTIME = ("base", "journal", "otel", "postgresql", "delta", "spark")


def component(pin: Pin) -> dict[str, Any]:
    extras = [group for group in pin.groups if group in RUNTIME and group != "base"]
    optional = "base" not in pin.groups
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl(pin.name, pin.version),
        "name": pin.name,
        "version": pin.version,
        "scope": "optional" if optional else "required",
        "purl": purl(pin.name, pin.version),
    }
    if optional:
        made["properties"] = [{"name": "polydomo:extras", "value": " ".join(extras)}]
    return made


def purl(name: str, version: str) -> str:
    return f"pkg:pypi/{normal(name)}@{version}"


def document(version: str, created: str, pins: list[Pin], files: dict[str, str]) -> str:
    """``created`` is the time of the commit, so that it has the same bytes each time; ``files`` are the digests of the release."""
    needed = [pin for pin in pins if set(pin.groups) & set(RUNTIME)]
    own = purl("polydomo", version)
    bom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, created + version + json.dumps(files, sort_keys=True))}",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "polydomo",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "components": [
                    {"type": "file", "name": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
                    for name, digest in sorted(files.items())
                ],
            },
        },
        "components": [component(pin) for pin in needed],
        "dependencies": [
            {"ref": own, "dependsOn": [purl(pin.name, pin.version) for pin in needed if "base" in pin.groups]}
        ],
    }
    return json.dumps(bom, indent=2) + "\n"
