"""The resources that a server serves, and the schemas of their objects."""

from dataclasses import dataclass, field
from typing import Any

from servers import Server

Schema = dict[str, Any]

# The description of a field whose type is a reference: it may list values, as in `- `"Always"` means ...`.
DESCRIPTION = "x-coracle-description"


@dataclass
class Resource:
    """A resource in one version."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    schema: Schema
    subresources: set[str] = field(default_factory=set)
    is_custom: bool = False

    def collection(self, namespace: str) -> str:
        """The path of the resource's objects."""
        root = "/apis/" if "/" in self.api_version else "/api/"
        middle = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{root}{self.api_version}{middle}/{self.plural}"

    @property
    def key(self) -> tuple[str, str]:
        """The apiVersion and the kind."""
        return self.api_version, self.kind


class Catalog:
    """All resources of a server whose objects can be created and read."""

    def __init__(self, server: Server) -> None:
        self.resources: dict[tuple[str, str], Resource] = {}
        self._schemas: dict[str, Schema] = {}
        for group_version in server.get("/openapi/v3")["paths"]:
            is_core = group_version == "api/v1"
            if is_core or group_version.startswith("apis/") and group_version.count("/") == 2:
                self._read(server, group_version)

    def _read(self, server: Server, group_version: str) -> None:
        document = server.get(f"/openapi/v3/{group_version}") or {}
        api_version = group_version.removeprefix("apis/").removeprefix("api/")
        roots = {}
        for name, schema in document.get("components", {}).get("schemas", {}).items():
            self._schemas[name] = schema
            for kind in schema.get("x-kubernetes-group-version-kind", []):
                version = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
                if version == api_version and "metadata" in schema.get("properties", {}):
                    roots[kind["kind"]] = schema
        listing = server.get(f"/{group_version}") or {}
        for entry in listing.get("resources", []):
            main, _, subresource = entry["name"].partition("/")
            if subresource:
                for resource in self.resources.values():
                    if (resource.api_version, resource.plural) == (api_version, main):
                        resource.subresources.add(subresource)
            elif {"create", "get"} <= set(entry["verbs"]) and entry["kind"] in roots:
                resource = Resource(
                    api_version, entry["kind"], main, entry["namespaced"], roots[entry["kind"]]
                )
                self.resources[resource.key] = resource

    def add(self, resource: Resource) -> None:
        """Adds a custom resource."""
        self.resources[resource.key] = resource

    def resolve(self, schema: Schema) -> Schema:
        """The schema behind references."""
        while True:
            parts = schema.get("allOf", [])
            if "$ref" in schema:
                schema = self._referenced(schema)
            elif len(parts) == 1 and "$ref" in parts[0]:
                schema = {**self._referenced(parts[0]), DESCRIPTION: schema.get("description", "")}
            elif len(parts) == 1 and "type" not in schema:
                schema = {**parts[0], **{k: v for k, v in schema.items() if k != "allOf"}}
            else:
                return schema

    def named(self, name: str) -> Schema:
        """The schema of a name, such as `io.k8s.api.autoscaling.v1.Scale`."""
        return self._schemas[name]

    def _referenced(self, schema: Schema) -> Schema:
        return self._schemas[schema["$ref"].rsplit("/", 1)[1]]


def type_of(schema: Schema) -> str:
    """The type of a resolved schema: one of JSON's, `quantity`, `intorstring`, or `any`."""
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return "intorstring"
    if "oneOf" in schema and "type" not in schema:
        alternatives = {alternative.get("type") for alternative in schema["oneOf"]}
        return "quantity" if "number" in alternatives else "intorstring"
    return schema.get("type", "object" if "properties" in schema else "any")
