"""Patches of all types that make one change of an object."""

import copy
import random
from typing import Any

from catalog import Catalog, Resource
from mutation import Mutation, Path
from servers import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, pointer_of

JSON_OPERATIONS = ["add", "add", "replace", "replace", "remove", "test", "move", "copy"]
SOURCES = ["/metadata/labels", "/metadata/name", "/spec", "/metadata/annotations", "/nothing"]
MERGE_KEY = "x-kubernetes-patch-merge-key"


class Fragments:
    """Makes the patches of a resource."""

    def __init__(self, chance: random.Random, catalog: Catalog, resource: Resource) -> None:
        self._chance = chance
        self._catalog = catalog
        self._resource = resource

    def patch(self, content_type: str, before: dict, after: dict, mutation: Mutation) -> Any:
        """A patch that makes of `before` what the mutation has made of it; None if there is none."""
        path = mutation.path
        if content_type == JSON_PATCH:
            return self._json(before, after, path)
        whole_lists = self._up_to_list(after, path)
        if content_type == MERGE_PATCH:
            return whole_lists
        if content_type == STRATEGIC_PATCH:
            return self._strategic(whole_lists, path)
        assert content_type == APPLY_PATCH
        return self._configuration(whole_lists, after)

    def _json(self, before: dict, after: dict, path: Path) -> list:
        operations = []
        if self._chance.random() < 0.15:
            tested = self._chance.choice(["/kind", "/metadata/labels", pointer_of(path[:-1])])
            operations.append({"op": "test", "path": tested, "value": value_at(before, path[:-1])})
        operation = self._chance.choice(JSON_OPERATIONS)
        pointer = pointer_of(path)
        if operation == "add" and isinstance(path[-1], int) and self._chance.random() < 0.4:
            pointer = pointer_of(path[:-1]) + "/-"
        item = {"op": operation, "path": pointer}
        if operation in ("add", "replace", "test"):
            item["value"] = value_at(after, path)
        if operation in ("move", "copy"):
            item["from"] = self._chance.choice(SOURCES)
        operations.append(item)
        if self._chance.random() < 0.1:
            operations.append({"op": "remove", "path": self._chance.choice([pointer, "/metadata/labels", "/status"])})
        return operations

    def _up_to_list(self, after: dict, path: Path) -> Any:
        """The changed member and its parents; a list is whole."""
        cut = next((index for index, step in enumerate(path) if isinstance(step, int)), len(path))
        fragment = copy.deepcopy(value_at(after, path[:cut]))
        for step in reversed(path[:cut]):
            fragment = {step: fragment}
        return fragment

    def _strategic(self, fragment: Any, path: Path) -> Any:
        """Lists with a merge key have only the changed item, and some patches have a directive."""
        node, schema = fragment, self._catalog.resolve(self._resource.schema)
        nodes = []
        for step in path:
            if not isinstance(node, dict) or step not in node or not schema.get("properties"):
                break
            nodes.append(node)
            member = schema["properties"].get(step)
            if member is None:
                break
            key, here = member.get(MERGE_KEY), node[step]
            index = path[len(nodes)] if len(nodes) < len(path) else None
            if key and isinstance(here, list) and isinstance(index, int) and self._chance.random() < 0.6:
                node[step] = here[index : index + 1]
                if self._chance.random() < 0.2:
                    node[f"$setElementOrder/{step}"] = [
                        {key: item[key]} for item in here if isinstance(item, dict) and key in item
                    ]
            node, schema = node[step], self._catalog.resolve(member)
        if nodes and self._chance.random() < 0.2:
            self._add_directive(self._chance.choice(nodes), path)
        return fragment

    def _add_directive(self, node: dict, path: Path) -> None:
        name = self._chance.choice([step for step in path if isinstance(step, str)])
        directive = self._chance.choice(
            [
                {"$patch": "replace"},
                {"$patch": "delete"},
                {"$patch": "merge"},
                {"$patch": "wrong"},
                {"$retainKeys": [name]},
                {"$retainKeys": list(node)},
                {f"$setElementOrder/{name}": ["a"]},
                {f"$deleteFromPrimitiveList/{name}": ["a"]},
            ]
        )
        node.update(directive)

    def _configuration(self, fragment: Any, after: dict) -> Any:
        if not isinstance(fragment, dict):
            return None
        if self._chance.random() < 0.25:
            fragment = copy.deepcopy(after)
            fragment.pop("status", None)
            if isinstance(fragment.get("metadata"), dict):
                for member in ("managedFields", "uid", "resourceVersion", "creationTimestamp", "generation"):
                    fragment["metadata"].pop(member, None)
        fragment.setdefault("apiVersion", self._resource.api_version)
        fragment.setdefault("kind", self._resource.kind)
        return fragment


def value_at(value: Any, path: Path) -> Any:
    """The value at a path, or None."""
    for step in path:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value
