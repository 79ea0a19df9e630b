"""Random values for a schema: valid ones, values on a boundary, and values of a wrong type."""

import copy
import random
import re
from typing import Any

from catalog import DESCRIPTION, Catalog, Schema, type_of

LISTED_VALUE = re.compile(r'- `"([^"]*)"`')

STRINGS = [
    "", "a", "Ab", "-bad", "x" * 64, "x" * 254, "a.b", "a/b", "/a", "1", "true", "None", "*", "a b", "ä", "a_b",
    "example.com/x", "example.com/x/y", "10%", "-1", "100m", "1Gi", "0.0.0.0", "10.0.0.1", "::1", "10.0.0.0/8",
    "http://a", "../x", "x1", "n", "default", "node-0", "TCP", "\u0000", "2020-01-01T00:00:00Z",
]  # fmt: skip
INTEGERS = [
    0, 1, -1, 2, 7, 100, 101, 65535, 65536, 2147483647, 2147483648, -2147483648, 9223372036854775807,
    9223372036854775808, 1.5, "1", None, True,
]  # fmt: skip
QUANTITIES = [
    "0", "1", "-1", "1Gi", "1.5Gi", "1m", "0.1m", "1n", "abc", "1e3", "1e400", "", 5, 1.5, "1 Gi", "+1", "1Ki1", ".5",
    "99999999999999999999", None, True,
]  # fmt: skip
INT_OR_STRINGS = [
    0, 1, -1, 70000, "10%", "110%", "-10%", "abc", "50", "http", "", "0%", "100%", 1.5, None, True, "x" * 16,
]  # fmt: skip
BOOLEANS = [True, False, "true", 1, None]
TIMES = [
    "2020-01-01T00:00:00Z", "2020-01-01T00:00:00.123456Z", "2999-01-01T00:00:00+02:00", "2020-01-01", "bad", "", None, 5,
    "0001-01-01T00:00:00Z",
]  # fmt: skip
BYTES = ["", "YQ==", "not base64!", "YQ", 5, None]
ANYTHING: list[Any] = [None, "", 0, {}, [], True, "wrong", [None], {"a": None}]
UNTYPED: list[Any] = [None, "x", 1, {}]

MAX_DEPTH = 3


class Values:
    """Random values for the schemas of a catalog."""

    def __init__(self, catalog: Catalog, chance: random.Random, wrong: float = 0.08) -> None:
        self._catalog = catalog
        self._chance = chance
        self._wrong = wrong

    def value(self, schema: Schema, depth: int = 0) -> Any:
        """A value for a schema."""
        schema = self._catalog.resolve(schema)
        if self._chance.random() < self._wrong:
            return copy.deepcopy(self._chance.choice(ANYTHING))
        match type_of(schema):
            case "string":
                return self._string(schema)
            case "integer" | "number":
                return self._chance.choice(INTEGERS)
            case "boolean":
                return self._chance.choice(BOOLEANS)
            case "quantity":
                return self._chance.choice(QUANTITIES)
            case "intorstring":
                return self._chance.choice(INT_OR_STRINGS)
            case "array":
                return self._array(schema, depth)
            case "object":
                return self._object(schema, depth)
            case _:
                return copy.deepcopy(self._chance.choice(UNTYPED))

    def _string(self, schema: Schema) -> Any:
        listed = LISTED_VALUE.findall(schema.get("description", "") + schema.get(DESCRIPTION, ""))
        listed += schema.get("enum", [])
        if listed and self._chance.random() < 0.6:
            return self._chance.choice(listed)
        string_format = schema.get("format", "")
        if "time" in string_format:
            return self._chance.choice(TIMES)
        if string_format == "byte":
            return self._chance.choice(BYTES)
        return self._chance.choice(STRINGS)

    def _array(self, schema: Schema, depth: int) -> list:
        if depth > MAX_DEPTH or self._chance.random() < 0.2 or "items" not in schema:
            return []
        item = self.value(schema["items"], depth + 1)
        return [item] if self._chance.random() < 0.75 else [item, copy.deepcopy(item)]

    def _object(self, schema: Schema, depth: int) -> dict:
        properties = schema.get("properties")
        if properties is None:
            return self._map(schema.get("additionalProperties"), depth)
        if depth > MAX_DEPTH:
            return {}
        required = schema.get("required", [])
        optional = [name for name in properties if name not in required]
        share = min(0.5, 1.6 / len(properties)) if properties else 0
        names = [name for name in required if name in properties and self._chance.random() < 0.9]
        names += [name for name in optional if self._chance.random() < share]
        return {name: self.value(properties[name], depth + 1) for name in names}

    def _map(self, values: Any, depth: int) -> dict:
        if not isinstance(values, dict):
            return {"a": self._chance.choice([1, "b", None])}
        if self._chance.random() < 0.15:
            return {}
        return {self._chance.choice(STRINGS): self.value(values, depth + 1)}
