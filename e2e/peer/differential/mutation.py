"""Changes one place of an object, chosen by its schema."""

import copy
import random
from typing import Any

from catalog import Catalog, Schema, type_of
from values import STRINGS, Values

MAX_STEPS = 14

Path = list[str | int]


class Mutation:
    """One change of an object: it is made in place."""

    def __init__(self, catalog: Catalog, chance: random.Random) -> None:
        self._catalog = catalog
        self._chance = chance
        self._values = Values(catalog, chance)
        # The changed place.
        self.path: Path = []
        # `set`, `delete`, `append`, `duplicate`, `unknown` or `none`.
        self.change = "none"

    def apply(self, obj: dict, schema: Schema, part: str = "") -> "Mutation":
        """Changes an object, or only its member `part`."""
        schema = self._catalog.resolve(schema)
        node: Any = obj
        if part:
            node = obj.setdefault(part, {})
            schema = self._catalog.resolve(schema["properties"][part])
            self.path = [part]
        elif self._chance.random() < 0.85:
            node, schema = self._into_content(obj, schema)
        for _ in range(MAX_STEPS):
            step = self._step(node, schema)
            if step is None:
                return self
            node, schema = step
        return self

    def _into_content(self, obj: dict, schema: Schema) -> tuple[Any, Schema]:
        """Begins in a member of the object that is not metadata: usually `spec`."""
        names = [name for name in schema.get("properties", {}) if name not in ENVELOPE]
        if not names:
            return obj, schema
        present = [name for name in names if name in obj]
        name = self._chance.choice(present or names if self._chance.random() < 0.8 else names)
        child = self._catalog.resolve(schema["properties"][name])
        is_collection = type_of(child) in ("object", "array") and isinstance(obj.get(name), dict | list)
        is_new_struct = name not in obj and type_of(child) == "object" and "properties" in child
        if not is_collection and not is_new_struct:
            return obj, schema
        self.path = [name]
        return obj.setdefault(name, {}), child

    def _step(self, node: Any, schema: Schema) -> tuple[Any, Schema] | None:
        """One level deeper, or None once something was changed."""
        if isinstance(node, dict) and schema.get("properties"):
            return self._in_struct(node, schema)
        if isinstance(node, list) and type_of(schema) == "array" and "items" in schema:
            return self._in_list(node, schema)
        if isinstance(node, dict):
            self._in_map(node, schema)
        return None

    def _in_struct(self, node: dict, schema: Schema) -> tuple[Any, Schema] | None:
        properties = schema["properties"]
        names = [
            name
            for name in properties
            if self.path or name not in ("apiVersion", "kind") or self._chance.random() < 0.1
        ]
        present = [name for name in names if name in node]
        if not names or self._chance.random() < 0.03:
            node["unknownField"] = 1
            return self._done("unknown", "unknownField")
        name = self._chance.choice(present if present and self._chance.random() < 0.62 else names)
        child = self._catalog.resolve(properties[name])
        here = node.get(name)
        if isinstance(here, dict | list) and here and self._chance.random() < 0.8:
            self.path.append(name)
            return here, child
        is_struct = type_of(child) == "object" and "properties" in child
        if name not in node and is_struct and self._chance.random() < 0.5:
            node[name] = {}
            self.path.append(name)
            return node[name], child
        if name in node and self._chance.random() < 0.18:
            del node[name]
            return self._done("delete", name)
        node[name] = self._values.value(properties[name])
        return self._done("set", name)

    def _in_list(self, node: list, schema: Schema) -> tuple[Any, Schema] | None:
        choice = self._chance.random()
        if node and choice < 0.8:
            index = self._chance.randrange(len(node))
            if choice < 0.62 and isinstance(node[index], dict | list):
                self.path.append(index)
                return node[index], self._catalog.resolve(schema["items"])
            if choice < 0.62:
                node[index] = self._values.value(schema["items"])
                return self._done("set", index)
            if choice < 0.72:
                node.append(copy.deepcopy(node[index]))
                return self._done("duplicate", len(node) - 1)
            del node[index]
            return self._done("delete", index)
        node.append(self._values.value(schema["items"]))
        return self._done("append", len(node) - 1)

    def _in_map(self, node: dict, schema: Schema) -> None:
        values = schema.get("additionalProperties")
        values = values if isinstance(values, dict) else {"type": "string"}
        choice = self._chance.random()
        if node and choice < 0.52:
            key = self._chance.choice(sorted(node))
            if choice < 0.4:
                node[key] = self._values.value(values)
                return self._done("set", key)
            del node[key]
            return self._done("delete", key)
        key = self._chance.choice(STRINGS)
        node[key] = self._values.value(values)
        return self._done("set", key)

    def _done(self, change: str, step: str | int) -> None:
        self.change = change
        self.path.append(step)


ENVELOPE = ("apiVersion", "kind", "metadata", "status")
