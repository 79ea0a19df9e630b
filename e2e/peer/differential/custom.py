"""Random CustomResourceDefinitions: structural schemas with rules, several versions, subresources."""

import copy
import random
from typing import Any

from catalog import Resource, Schema

GROUP = "differential.example.com"
# Apart from `properties` these are random: the names are those that rules refer to.
NAMES = ["a", "b", "c", "count", "name", "items", "labels", "mode", "size", "x-y", "namespace", "for"]

Chance = random.Random

RULES: dict[str, list[dict]] = {
    "string": [
        {"rule": "self.size() > 1", "message": "too short"},
        {"rule": "self.matches('^[a-z]+$')"},
        {"rule": "self == oldSelf", "message": "immutable", "reason": "FieldValueForbidden"},
        {"rule": "self.startsWith('a')", "messageExpression": "'not with a: ' + self"},
        {"rule": "oldSelf.hasValue() || self != 'x'", "optionalOldSelf": True},
        {"rule": "!self.contains('\\\\n') && self.lowerAscii() == self"},
        {"rule": "self in ['a', 'b', 'x1']", "reason": "FieldValueRequired"},
        {"rule": "isURL(self) || self.size() < 4"},
    ],
    "integer": [
        {"rule": "self > 0", "message": "not positive"},
        {"rule": "self % 2 == 0", "messageExpression": "'odd: ' + string(self)"},
        {"rule": "self >= oldSelf", "reason": "FieldValueInvalid"},
        {"rule": "10 / self > 1"},
    ],
    "number": [{"rule": "self < 100.5"}, {"rule": "double(int(self)) == self", "message": "not whole"}],
    "boolean": [{"rule": "self", "message": "must be true"}, {"rule": "!self || oldSelf"}],
    "array": [
        {"rule": "self.size() < 3"},
        {"rule": "self.all(x, x == self[0])", "message": "not all alike"},
        {"rule": "self.exists_one(x, x == self[0])"},
        {"rule": "oldSelf.size() <= self.size()", "messageExpression": "'shrunk to ' + string(self.size())"},
        {"rule": "self.size() == 0 || self[1] == self[0]"},
    ],
    "object": [
        {"rule": "has(self.a)", "fieldPath": ".a", "reason": "FieldValueRequired"},
        {"rule": "!has(self.a) || !has(self.b)", "message": "not both"},
        {"rule": "has(self.count) ? self.count > 1 : true", "fieldPath": ".count"},
        {"rule": "self == oldSelf", "message": "immutable"},
        {"rule": "size(self.name) > 1"},
    ],
}  # fmt: skip


def definitions(seed: int, count: int) -> list[dict]:
    """Random definitions; some of them may be invalid."""
    return [definition(random.Random(f"custom/{seed}/{index}"), f"s{seed}k{index}") for index in range(count)]


def definition(chance: Chance, name: str) -> dict:
    """A random definition of a kind."""
    kind = name.capitalize()
    versions = [version(chance, "v1", None)]
    for later in ["v2", "v1beta1"][: chance.choice([0, 0, 1, 2])]:
        versions.append(version(chance, later, versions[0]))
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}s.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": chance.choice(["Namespaced", "Namespaced", "Cluster"]),
            "names": {"plural": f"{name}s", "singular": name, "kind": kind, "listKind": f"{kind}List"},
            "versions": versions,
        },
    }


def version(chance: Chance, name: str, like: dict | None) -> dict:
    """A version; the first one is the stored one."""
    if like is not None:
        result = copy.deepcopy(like)
        result.update(name=name, storage=False)
        properties = result["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        if chance.random() < 0.5:
            properties["added"] = schema(chance, 2)
        if len(properties) > 1 and chance.random() < 0.3:
            properties.pop(chance.choice(sorted(properties)))
        return result
    spec = structure(chance, 0)
    status = {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}}
    result = {
        "name": name,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
    }
    if chance.random() < 0.7:
        result["subresources"] = {"status": {}}
        if chance.random() < 0.5:
            spec["properties"]["replicas"] = {"type": "integer", "minimum": 0, "default": 1}
            result["subresources"]["scale"] = {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
            }
    return result


def schema(chance: Chance, depth: int) -> Schema:
    """A random schema of a field."""
    kinds = ["string", "string", "integer", "number", "boolean", "array", "object", "object", "intorstring", "any"]
    kind = chance.choice(kinds if depth < 3 else kinds[:5])
    result = {
        "string": string,
        "integer": number,
        "number": number,
        "boolean": lambda _, kind: {"type": kind},
        "array": lambda chance, _: array(chance, depth),
        "object": lambda chance, _: structure(chance, depth + 1),
        "intorstring": lambda *_: {"x-kubernetes-int-or-string": True},
        "any": lambda *_: {"x-kubernetes-preserve-unknown-fields": True},
    }[kind](chance, kind)
    if chance.random() < 0.15:
        result["nullable"] = True
    if kind in RULES and chance.random() < 0.3:
        result["x-kubernetes-validations"] = rules(chance, kind, result)
    return result


def rules(chance: Chance, kind: str, of: Schema) -> list[dict]:
    """Rules for a schema; for those of an object its fields have to be there."""
    fits = [
        rule
        for rule in RULES[kind]
        if kind != "object"
        or all(f"self.{name}" not in rule["rule"] or name in of.get("properties", {}) for name in NAMES[:5])
    ]
    return copy.deepcopy(chance.sample(fits, min(len(fits), chance.choice([1, 1, 2]))))


def string(chance: Chance, kind: str) -> Schema:
    """A string with limits."""
    result: Schema = {"type": kind, "maxLength": chance.choice([3, 10, 64])}
    match chance.randrange(6):
        case 0:
            result.update(enum=["a", "b", "x1"])
        case 1:
            result.update(pattern="^[a-z0-9]*$")
        case 2:
            result.update(format=chance.choice(["date-time", "date", "byte", "ipv4", "uuid", "email", "duration", "uri"]))
        case 3:
            result.update(minLength=1, default="a")
    return result


def number(chance: Chance, kind: str) -> Schema:
    """A number with limits."""
    result: Schema = {"type": kind}
    match chance.randrange(5):
        case 0:
            result.update(minimum=0, maximum=chance.choice([2, 100]))
        case 1:
            result.update(minimum=1, exclusiveMinimum=True)
        case 2:
            result.update(multipleOf=2)
        case 3:
            result.update(default=2)
    if chance.random() < 0.3:
        result["format"] = "int32" if kind == "integer" else "double"
    return result


def array(chance: Chance, depth: int) -> Schema:
    """A list: atomic, a set or a map."""
    result: Schema = {"type": "array", "maxItems": 5}
    match chance.randrange(4):
        case 0:
            result.update({"x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 10}})
        case 1:
            item = structure(chance, depth + 1, may_be_map=False)
            item["properties"]["name"] = {"type": "string", "maxLength": 10}
            item["required"] = sorted({*item.get("required", []), "name"})
            result.update({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item})
        case _:
            result["items"] = schema(chance, depth + 1)
    if chance.random() < 0.2:
        result["minItems"] = 1
    return result


def structure(chance: Chance, depth: int, may_be_map: bool = True) -> Schema:
    """A struct or a map."""
    if depth and may_be_map and chance.random() < 0.25:
        return {"type": "object", "maxProperties": 4, "additionalProperties": schema(chance, depth + 1)}
    names = chance.sample(NAMES, chance.randint(2, 5))
    result: Schema = {"type": "object", "properties": {name: schema(chance, depth + 1) for name in names}}
    if chance.random() < 0.3:
        result["required"] = [chance.choice(names)]
    if chance.random() < 0.1:
        result["x-kubernetes-preserve-unknown-fields"] = True
    if depth and "required" not in result and chance.random() < 0.15:
        result["default"] = {}
    if chance.random() < 0.1:
        result["x-kubernetes-map-type"] = "atomic"
    return result


def resources(crd: dict) -> list[Resource]:
    """The resources of a definition, one for each version."""
    spec = crd["spec"]
    found = []
    for served in spec["versions"]:
        kind_schema = copy.deepcopy(served["schema"]["openAPIV3Schema"])
        kind_schema["properties"].update(
            apiVersion={"type": "string"}, kind={"type": "string"}, metadata={"$ref": f"#/{OBJECT_META}"}
        )
        subresources = set(served.get("subresources", {}))
        found.append(
            Resource(
                f"{spec['group']}/{served['name']}",
                spec["names"]["kind"],
                spec["names"]["plural"],
                spec["scope"] == "Namespaced",
                kind_schema,
                subresources,
                is_custom=True,
            )
        )
    return found


OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def base(chance: Chance, resource: Resource, index: int) -> dict:
    """An object of a custom kind, most of whose values are valid."""
    spec = valid(chance, resource.schema["properties"]["spec"])
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": f"n{index}"},
        "spec": spec,
    }


def valid(chance: Chance, of: Schema) -> Any:
    """A value that is likely to be valid."""
    if "enum" in of:
        return chance.choice(of["enum"])
    match of.get("type"):
        case "string":
            formats = {
                "date-time": "2020-01-01T00:00:00Z", "date": "2020-01-01", "byte": "YQ==", "ipv4": "10.0.0.1",
                "uuid": "8a6a3a8e-3b0e-4a3a-9a53-0c1d4f3b6a11", "email": "a@example.com", "duration": "1h",
                "uri": "http://a",
            }  # fmt: skip
            return formats.get(of.get("format", ""), chance.choice(["a", "ab", "x1"]))
        case "integer":
            return chance.choice([2, 4])
        case "number":
            return chance.choice([2, 4, 1.5])
        case "boolean":
            return True
        case "array":
            count = chance.choice([1, 2])
            items = [valid(chance, of["items"]) for _ in range(count)]
            for index, item in enumerate(items):
                if isinstance(item, dict) and "x-kubernetes-list-map-keys" in of:
                    item["name"] = f"n{index}"
            return items if of.get("x-kubernetes-list-type") != "set" else sorted(set(items))
        case "object" if "properties" in of:
            required = of.get("required", [])
            names = [name for name in of["properties"] if name in required or chance.random() < 0.7]
            return {name: valid(chance, of["properties"][name]) for name in names}
        case "object":
            extra = of.get("additionalProperties")
            return {"k": valid(chance, extra)} if isinstance(extra, dict) else {}
        case _:
            return chance.choice([1, "a"])
