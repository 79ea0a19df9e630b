"""Random cases: each is one request, or a conversation of several."""

import copy
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import conversations
import fragments
from bases import collection_of
from catalog import Catalog, Resource
from mutation import Mutation, Path
from servers import APPLY_PATCH, JSON, JSON_PATCH, LIVE, MERGE_PATCH, STRATEGIC_PATCH, Request, Server, pointer_of
from setup import Setup, Stored

# Members that each server fills in by itself.
CHOSEN_BY_SERVER = {
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "lastPhaseTransitionTime",
    "lastTransitionTime",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "healthCheckNodePort",
    "managedFields",
}
# Names and labels that each server makes by itself.
GENERATED = re.compile(r"^kube-api-access-[a-z0-9]{5}$|^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")

SCALE = "io.k8s.api.autoscaling.v1.Scale"
DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"


@dataclass
class Case:
    """Requests whose responses are compared."""

    index: int
    kind: str
    operation: str
    requests: list[Request]
    # The place that was changed, for grouping.
    place: Path = field(default_factory=list)


class Cases:
    """The cases of a seed: the same index gives the same case."""

    WEIGHTS = {
        "create": 24,
        "update": 16,
        "merge": 8,
        "strategic": 8,
        "json": 8,
        "apply": 9,
        "status": 8,
        "scale": 3,
        "subresource": 4,
        "delete": 2,
        "conversation": 6,
        "policy": 4,
    }

    def __init__(
        self, server: Server, catalog: Catalog, setup: Setup, seed: int, operations: set[str] | None
    ) -> None:
        self._server = server
        self._catalog = catalog
        self._setup = setup
        self._seed = seed
        weights = {name: weight for name, weight in self.WEIGHTS.items() if operations is None or name in operations}
        self._operations = list(weights)
        self._weights = list(weights.values())
        self._by_kind: dict[tuple[str, str], list[Stored]] = {}
        for stored in setup.stored:
            self._by_kind.setdefault(stored.resource.key, []).append(stored)

    def case(self, index: int) -> Case | None:
        """The case of an index; None if the choice makes no request."""
        chance = random.Random(f"case/{self._seed}/{index}")
        operation = chance.choices(self._operations, self._weights)[0]
        make: Callable[[random.Random], Case | None] = getattr(self, f"_{operation}")
        case = make(chance)
        if case is not None:
            case.index, case.operation = index, operation
            if operation == "conversation":
                conversations.rename(case.requests, f"c{self._seed}-{index}")
        return case

    # ---- Creation ---------------------------------------------------------------------------------------------------

    def _create(self, chance: random.Random) -> Case:
        resource = self._any_kind(chance)
        pool = self._setup.accepted[resource.key]
        if self._setup.refused.get(resource.key) and chance.random() < 0.05:
            pool = self._setup.refused[resource.key]
        body = copy.deepcopy(chance.choice(pool))
        place = self._mutate(chance, body, resource)
        if chance.random() < 0.2:
            self._mutate(chance, body, resource)
        return one(resource, place, Request("POST", f"{collection_of(resource)}?{query(chance)}", body))

    def _policy(self, chance: random.Random) -> Case | None:
        namespace = chance.choice(self._setup.policy_namespaces)
        keys = [key for key in self._setup.accepted if key[1] in GOVERNED]
        if not keys:
            return None
        resource = self._catalog.resources[chance.choice(sorted(keys))]
        body = copy.deepcopy(chance.choice(self._setup.accepted[resource.key]))
        place: Path = []
        if chance.random() < 0.5:
            place = self._mutate(chance, body, resource)
        if chance.random() < 0.5 and isinstance(body.get("metadata"), dict):
            body["metadata"]["labels"] = chance.choice([{"a": "b"}, {"a": ""}, {"b": "c"}, {}])
        return one(resource, place, Request("POST", f"{resource.collection(namespace)}?{query(chance)}", body))

    # ---- Changes of a stored object ---------------------------------------------------------------------------------

    def _update(self, chance: random.Random) -> Case:
        stored = self._any_stored(chance)
        body = self._template(chance, stored.path)
        place = self._mutate(chance, body, stored.resource)
        return one(stored.resource, place, self._put(stored, "", chance, body))

    def _merge(self, chance: random.Random) -> Case | None:
        return self._patch(chance, MERGE_PATCH)

    def _strategic(self, chance: random.Random) -> Case | None:
        return self._patch(chance, STRATEGIC_PATCH)

    def _apply(self, chance: random.Random) -> Case | None:
        return self._patch(chance, APPLY_PATCH)

    def _json(self, chance: random.Random) -> Case | None:
        return self._patch(chance, JSON_PATCH)

    def _status(self, chance: random.Random) -> Case | None:
        stored = self._any_stored(chance, subresource="status")
        if stored is None or "status" not in self._properties(stored.resource):
            return None
        if chance.random() < 0.4:
            content_type = chance.choice([MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH, JSON_PATCH])
            return self._patch(chance, content_type, stored, "status")
        body = self._template(chance, stored.path)
        place = self._mutate(chance, body, stored.resource, "status")
        return one(stored.resource, place, self._put(stored, "/status", chance, body))

    def _scale(self, chance: random.Random) -> Case | None:
        stored = self._any_stored(chance, subresource="scale")
        if stored is None:
            return None
        path = f"{stored.path}/scale"
        scale = Resource("autoscaling/v1", "Scale", "", True, self._catalog.named(SCALE))
        if self._server.live(path) is None:
            return None
        if chance.random() < 0.5:
            patched = Stored(scale, path, {})
            case = self._patch(chance, chance.choice([MERGE_PATCH, JSON_PATCH, APPLY_PATCH]), patched)
        else:
            body = self._template(chance, path)
            place = self._mutate(chance, body, scale)
            case = one(scale, place, self._put(Stored(scale, path, {}), "", chance, body))
        if case is not None:
            case.kind = f"{stored.resource.kind}/Scale"
        return case

    def _subresource(self, chance: random.Random) -> Case | None:
        kind, name, verb, part = chance.choice(SUBRESOURCES)
        candidates = [stored for key, all_of in self._by_kind.items() if key[1] == kind for stored in all_of]
        if not candidates:
            return None
        stored = chance.choice(candidates)
        path = f"{stored.path}/{name}?{query(chance)}"
        if verb == "POST":
            schema = self._catalog.named(part)
            body = copy.deepcopy(SUBRESOURCE_BODIES[name])
            place = Mutation(self._catalog, chance).apply(body, schema).path
            return one(stored.resource, [name, *place], Request("POST", path, body))
        body = self._template(chance, stored.path)
        if name == "ephemeralcontainers":
            container = {"name": "debug", "image": "busybox", "targetContainerName": "c"}
            body["spec"].setdefault("ephemeralContainers", []).append(container)
        place = self._mutate(chance, body, stored.resource, part)
        return one(stored.resource, [name, *place], Request("PUT", path, body, live=stored.path))

    def _delete(self, chance: random.Random) -> Case:
        stored = self._any_stored(chance)
        body: dict = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}
        place: Path = []
        if chance.random() < 0.8:
            place = Mutation(self._catalog, chance).apply(body, self._catalog.named(DELETE_OPTIONS)).path
        # A body that is not valid must not delete anything.
        if body.get("dryRun") != ["All"]:
            body["dryRun"] = ["All"]
        return one(stored.resource, place, Request("DELETE", stored.path, body))

    def _conversation(self, chance: random.Random) -> Case | None:
        keys = sorted(key for key in self._by_kind if key[1] not in conversations.NOT_PLAYED)
        if not keys:
            return None
        resource = self._catalog.resources[chance.choice(keys)]
        versions = [
            other
            for other in self._catalog.resources.values()
            if other.plural == resource.plural and group(other) == group(resource)
        ]
        story = conversations.Conversation(self._catalog, chance, versions, self._setup.accepted)
        return Case(0, resource.kind, "", story.requests(), story.place)

    # ---- Parts ------------------------------------------------------------------------------------------------------

    def _any_kind(self, chance: random.Random) -> Resource:
        keys = sorted(key for key, bodies in self._setup.accepted.items() if bodies)
        return self._catalog.resources[chance.choice(keys)]

    def _any_stored(self, chance: random.Random, subresource: str = "") -> Stored | None:
        keys = sorted(
            key
            for key in self._by_kind
            if not subresource or subresource in self._catalog.resources[key].subresources
        )
        return chance.choice(self._by_kind[chance.choice(keys)]) if keys else None

    def _properties(self, resource: Resource) -> dict:
        return self._catalog.resolve(resource.schema).get("properties", {})

    def _mutate(self, chance: random.Random, body: dict, resource: Resource, part: str = "") -> Path:
        mutation = Mutation(self._catalog, chance).apply(body, resource.schema, part)
        return mutation.path

    def _template(self, chance: random.Random, path: str) -> dict:
        """The object at a path, with references to what each server has chosen by itself."""
        body = refer(self._server.live(path), [])
        metadata = body["metadata"]
        if chance.random() < 0.8:
            metadata.pop("managedFields", None)
        if chance.random() < 0.5:
            metadata.pop("uid", None)
        if chance.random() < 0.2:
            metadata.pop("resourceVersion", None)
        elif chance.random() < 0.02:
            metadata["resourceVersion"] = "1"
        return body

    def _put(self, stored: Stored, subresource: str, chance: random.Random, body: Any) -> Request:
        return Request("PUT", f"{stored.path}{subresource}?{query(chance)}", body, JSON, live=stored.path)

    def _patch(
        self, chance: random.Random, content_type: str, stored: Stored | None = None, part: str = ""
    ) -> Case | None:
        stored = stored or self._any_stored(chance)
        body = self._template(chance, stored.path)
        before = copy.deepcopy(body)
        mutation = Mutation(self._catalog, chance).apply(body, stored.resource.schema, part)
        if not mutation.path:
            return None
        maker = fragments.Fragments(chance, self._catalog, stored.resource)
        patch = maker.patch(content_type, before, body, mutation)
        if patch is None:
            return None
        parameters = query(chance)
        if content_type == APPLY_PATCH:
            manager = chance.choice(["d", "d", "e", "kubectl"])
            parameters = f"fieldManager={manager}&force={chance.choice(['true', 'false'])}&{parameters}"
        path = f"{stored.path}{'/' + part if part else ''}?{parameters}"
        request = Request("PATCH", path, patch, content_type, live=stored.path)
        return one(stored.resource, mutation.path, request)


def one(resource: Resource, place: Path, request: Request) -> Case:
    """A case of one request."""
    return Case(0, resource.kind, "", [request], place)


def query(chance: random.Random) -> str:
    """Parameters of a write that stores nothing."""
    return "dryRun=All&fieldValidation=" + chance.choice(["Strict", "Strict", "Warn", "Ignore"])


def group(resource: Resource) -> str:
    """The API group of a resource."""
    return resource.api_version.rpartition("/")[0]


def refer(value: Any, path: Path) -> Any:
    """Replaces values that each server has chosen by itself by references."""
    if path and path[-1] in CHOSEN_BY_SERVER and value not in (None, "", "None", ["None"]):
        return LIVE + pointer_of(path)
    if isinstance(value, dict):
        return {name: refer(member, [*path, name]) for name, member in value.items()}
    if isinstance(value, list):
        return [refer(item, [*path, index]) for index, item in enumerate(value)]
    if isinstance(value, str) and GENERATED.match(value):
        return LIVE + pointer_of(path)
    return value


# Kinds that the policies are about.
GOVERNED = ("ConfigMap", "Service", "Pod", "Deployment", "Secret")

# Kind, subresource, verb, and the part that changes or the schema of the body.
SUBRESOURCES = [
    ("Pod", "ephemeralcontainers", "PUT", "spec"),
    ("Pod", "resize", "PUT", "spec"),
    ("CertificateSigningRequest", "approval", "PUT", "status"),
    ("Pod", "eviction", "POST", "io.k8s.api.policy.v1.Eviction"),
    ("Pod", "binding", "POST", "io.k8s.api.core.v1.Binding"),
    ("ServiceAccount", "token", "POST", "io.k8s.api.authentication.v1.TokenRequest"),
]
SUBRESOURCE_BODIES = {
    "eviction": {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {}, "deleteOptions": {"dryRun": ["All"]}},
    "binding": {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {},
        "target": {"kind": "Node", "name": "node-x1"},
    },
    "token": {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["a"], "expirationSeconds": 3600},
    },
}
