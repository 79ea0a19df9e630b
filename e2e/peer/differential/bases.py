"""Objects that cases start from: those that the recordings create, and a few more."""

import copy
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from catalog import Catalog, Resource
from servers import Server

NAMESPACE = "differential"
# Quotas and limits would change what other requests do.
BOUNDED_NAMESPACE = "differential-bounds"

HERE = Path(__file__).resolve().parent
RECORDINGS = HERE.parent.parent / "recordings"

MAX_BASES = 40
VARIABLE = re.compile(r"\$\{?[A-Za-z_0-9]+\}?")

Bases = dict[tuple[str, str], list[dict]]


def namespace_of(resource: Resource) -> str:
    """The namespace in which objects of a resource are created."""
    return BOUNDED_NAMESPACE if resource.kind in ("ResourceQuota", "LimitRange") else NAMESPACE


def collection_of(resource: Resource) -> str:
    """The path of the collection in which objects of a resource are created."""
    return resource.collection(namespace_of(resource))


def read(catalog: Catalog) -> Bases:
    """The objects of all kinds that the catalog has."""
    bases: Bases = defaultdict(list)
    seen = set()
    for body in recorded_bodies() + json.loads((HERE / "bases.json").read_text()):
        resource = catalog.resources.get((body.get("apiVersion"), body.get("kind")))
        if resource is None or len(bases[resource.key]) >= MAX_BASES:
            continue
        body = prepared(body)
        if body is None or (text := json.dumps(body, sort_keys=True)) in seen:
            continue
        seen.add(text)
        bases[resource.key].append(body)
    return bases


def recorded_bodies() -> list[dict]:
    """The bodies of all creations in the recordings."""
    bodies = []
    for file in sorted(RECORDINGS.glob("*/*.json")):
        for step in json.loads(file.read_text()).get("steps", []):
            body = step.get("body")
            if step.get("req", "").startswith("POST ") and isinstance(body, dict):
                bodies.append(body)
    return bodies


def prepared(body: dict) -> dict | None:
    """A body without variables, and without what ties it to other objects."""
    body = fill(copy.deepcopy(body))
    metadata = body.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        return None
    for member in ("namespace", "ownerReferences", "resourceVersion"):
        metadata.pop(member, None)
    if body["kind"] != "CustomResourceDefinition":
        metadata.pop("generateName", None)
        metadata.setdefault("name", "n")
    return body


def fill(value: Any) -> Any:
    """Replaces the variables of a recording."""
    if isinstance(value, str):
        return VARIABLE.sub(lambda match: NAMESPACE if "NS" in match[0] else "x1", value)
    if isinstance(value, list):
        return [fill(item) for item in value]
    if isinstance(value, dict):
        return {fill(name): fill(member) for name, member in value.items()}
    return value


def sort_out(server: Server, catalog: Catalog, bases: Bases) -> tuple[Bases, Bases]:
    """The objects that a server accepts, and those that it refuses."""
    accepted: Bases = defaultdict(list)
    refused: Bases = defaultdict(list)
    for key, bodies in bases.items():
        path = collection_of(catalog.resources[key]) + "?dryRun=All"
        for body in bodies:
            code = server.call("POST", path, body).code
            # What is there already was accepted before.
            (accepted if code in (201, 409) else refused)[key].append(body)
    return accepted, refused
