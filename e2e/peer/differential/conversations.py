"""Conversations: several managers write one object in turn, and each response is compared."""

import copy
import random
from typing import Any

from bases import Bases, collection_of
from catalog import Catalog, Resource
from mutation import Mutation, Path
from servers import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Request

# Kinds whose objects change how other requests are handled.
NOT_PLAYED = {
    "CustomResourceDefinition",
    "FlowSchema",
    "IPAddress",
    "IngressClass",
    "LimitRange",
    "Namespace",
    "Node",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "ResourceQuota",
    "ServiceCIDR",
    "StorageClass",
}
MANAGERS = ["a", "b", "kubectl"]
RESETS: list[Any] = [[{}], [], None]


class Conversation:
    """The requests about one object, whose name is given afterwards."""

    def __init__(self, catalog: Catalog, chance: random.Random, versions: list[Resource], bases: Bases) -> None:
        self._catalog = catalog
        self._chance = chance
        self._versions = [version for version in versions if bases.get(version.key)]
        self._bases = bases
        self.place: Path = []

    def requests(self) -> list[Request]:
        """A creation, some changes, and the deletion."""
        requests = [self._apply(None) if self._chance.random() < 0.7 else self._create()]
        for _ in range(self._chance.choice([1, 2, 2, 3, 4])):
            step = self._chance.choice([self._apply, self._apply, self._apply, self._merge, self._status, self._reset])
            requests.append(step(None))
        version = self._version()
        requests.append(Request("DELETE", f"{collection_of(version)}/NAME?gracePeriodSeconds=0"))
        return requests

    def _version(self) -> Resource:
        return self._chance.choice(self._versions)

    def _configuration(self, version: Resource) -> dict:
        """A part of a base object, often with a change."""
        body = copy.deepcopy(self._chance.choice(self._bases[version.key]))
        body["metadata"]["name"] = "NAME"
        if self._chance.random() < 0.6:
            mutation = Mutation(self._catalog, self._chance).apply(body, version.schema)
            self.place = mutation.path or self.place
        if isinstance(body.get("metadata"), dict):
            body["metadata"]["name"] = "NAME"
            if self._chance.random() < 0.4:
                body["metadata"]["labels"] = {self._chance.choice("ab"): self._chance.choice("xy")}
        body["apiVersion"], body["kind"] = version.api_version, version.kind
        return self._thin(body) if self._chance.random() < 0.6 else body

    def _thin(self, value: Any, depth: int = 0) -> Any:
        """Leaves out some members below the second level."""
        if isinstance(value, dict):
            kept = (
                (name, member)
                for name, member in value.items()
                if depth < 1 or name in ("name", "containerPort", "protocol", "port") or self._chance.random() < 0.85
            )
            return {name: self._thin(member, depth + 1) for name, member in kept}
        if isinstance(value, list):
            return [self._thin(item, depth + 1) for item in value]
        return value

    def _create(self) -> Request:
        version = self._version()
        return Request("POST", f"{collection_of(version)}?fieldManager=a", self._configuration(version))

    def _apply(self, _: None) -> Request:
        version = self._version()
        manager, force = self._chance.choice(MANAGERS), self._chance.choice(["true", "false"])
        path = f"{collection_of(version)}/NAME?fieldManager={manager}&force={force}"
        return Request("PATCH", path, self._configuration(version), APPLY_PATCH)

    def _merge(self, _: None) -> Request:
        version = self._version()
        body = self._configuration(version)
        metadata = body.get("metadata")
        # It may have been changed to anything.
        if isinstance(metadata, dict):
            metadata.pop("name", None)
        manager = self._chance.choice(["u", "v"])
        path = f"{collection_of(version)}/NAME?fieldManager={manager}"
        return Request("PATCH", path, body, MERGE_PATCH)

    def _status(self, _: None) -> Request:
        version = self._version()
        properties = self._catalog.resolve(version.schema).get("properties", {})
        if "status" not in version.subresources or "status" not in properties:
            return self._merge(None)
        body = {"apiVersion": version.api_version, "kind": version.kind, "metadata": {"name": "NAME"}}
        mutation = Mutation(self._catalog, self._chance).apply(body, version.schema, "status")
        self.place = mutation.path
        manager, force = self._chance.choice(MANAGERS), self._chance.choice(["true", "false"])
        path = f"{collection_of(version)}/NAME/status?fieldManager={manager}"
        if self._chance.random() < 0.5:
            return Request("PATCH", f"{path}&force={force}", body, APPLY_PATCH)
        return Request("PATCH", path, body, MERGE_PATCH)

    def _reset(self, _: None) -> Request:
        """Managed fields that a client writes."""
        path = f"{collection_of(self._version())}/NAME?fieldManager=r"
        if self._chance.random() < 0.5:
            body = {"metadata": {"managedFields": self._chance.choice(RESETS)}}
            return Request("PATCH", path, body, MERGE_PATCH)
        operation = {"op": "replace", "path": "/metadata/managedFields", "value": self._chance.choice(RESETS)}
        return Request("PATCH", path, [operation], JSON_PATCH)


def rename(requests: list[Request], name: str) -> None:
    """Gives the object its name."""
    for request in requests:
        request.path = request.path.replace("/NAME", f"/{name}")
        metadata = request.body.get("metadata") if isinstance(request.body, dict) else None
        if isinstance(metadata, dict) and metadata.get("name") == "NAME":
            metadata["name"] = name
