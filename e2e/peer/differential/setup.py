"""The state that cases need: custom kinds, objects that are updated, and policies."""

import copy
import random
from collections import defaultdict
from dataclasses import dataclass, field

import bases as base_objects
import custom
import policies
from bases import BOUNDED_NAMESPACE, NAMESPACE, Bases, collection_of
from catalog import Catalog, Resource
from servers import Request, Response, Server

# Objects of these kinds change how other requests are handled, or do not rest.
NOT_STORED = {
    "APIService",
    "Endpoints",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "TokenReview",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
}
# What makes an object the default for others.
DEFAULT_CLASSES = ("storageclass.kubernetes.io/is-default-class", "ingressclass.kubernetes.io/is-default-class")

STORED_OF_A_KIND = 6
# Kinds whose objects cannot get another name: of these some stay free to be created.
STORED_BY_THEIR_NAME = 2
DEFINITIONS = 12
CUSTOM_BASES = 8
POLICIES = 8


@dataclass
class Stored:
    """An object on both servers."""

    resource: Resource
    path: str
    body: dict


@dataclass
class Setup:
    """The state of a server, as the requests that make it."""

    requests: list[Request] = field(default_factory=list)
    accepted: Bases = field(default_factory=lambda: defaultdict(list))
    refused: Bases = field(default_factory=lambda: defaultdict(list))
    stored: list[Stored] = field(default_factory=list)
    policy_namespaces: list[str] = field(default_factory=list)
    # What only the reference server accepts: the request, and both responses.
    refused_requests: list[tuple[Request, Response, Response]] = field(default_factory=list)

    def apply(self, server: Server) -> None:
        """Brings a server into the state."""
        for request in self.requests:
            response = server.send(request)
            if not has_succeeded(request, response):
                raise SystemExit(f"{server.url} refuses {request.body}: {response.body}")


def has_succeeded(request: Request, response: Response) -> bool:
    """Whether the part of the state is there after a request."""
    return response.code in (200, 201, 409, request.until)


class Builder:
    """Makes the state on the reference server, which decides what is accepted, and on the one that is compared with it."""

    def __init__(self, server: Server, subject: Server | None, catalog: Catalog, seed: int) -> None:
        self._server = server
        self._subject = subject
        self._catalog = catalog
        self._seed = seed
        self.setup = Setup()

    def build(self, kinds: set[str] | None) -> Setup:
        """Makes the state; `kinds` limits the kinds of the cases."""
        for namespace in (NAMESPACE, BOUNDED_NAMESPACE):
            for request in policies.namespace(namespace):
                self._create(request)
        found = base_objects.read(self._catalog)
        self._define(found)
        if kinds:
            found = {key: bodies for key, bodies in found.items() if key[1] in kinds}
        setup = self.setup
        setup.accepted, setup.refused = base_objects.sort_out(self._server, self._catalog, found)
        self._store()
        made = policies.policies(self._seed, POLICIES)
        setup.policy_namespaces = made.namespaces
        for request in made.setup:
            self._create(request, must_succeed=True)
        return setup

    def _create(self, request: Request, must_succeed: bool = False) -> bool:
        """Sends a request that makes a part of the state; false if it is refused."""
        response = self._server.send(request)
        if not has_succeeded(request, response):
            if must_succeed:
                raise SystemExit(f"{self._server.url} refuses {request.body}: {response.body}")
            return False
        if self._subject is not None:
            other = self._subject.send(request)
            if not has_succeeded(request, other):
                self.setup.refused_requests.append((request, response, other))
                return False
        self.setup.requests.append(request)
        return True

    def _define(self, bases: Bases) -> None:
        """Creates random custom kinds, with objects to start from."""
        definitions = custom.definitions(self._seed, 2 * DEFINITIONS)
        for definition in definitions[DEFINITIONS:]:
            bases[definition["apiVersion"], definition["kind"]].append(definition)
        for index, definition in enumerate(definitions[:DEFINITIONS]):
            if not self._create(Request("POST", CRDS, definition)):
                continue
            for resource in custom.resources(definition):
                self._catalog.add(resource)
                self._create(Request("GET", collection_of(resource), until=200))
                chance = random.Random(f"base/{self._seed}/{index}/{resource.api_version}")
                bases[resource.key] += [custom.base(chance, resource, n) for n in range(CUSTOM_BASES)]

    def _store(self) -> None:
        """Stores some objects of each kind."""
        for key, bodies in sorted(self.setup.accepted.items()):
            if key[1] in NOT_STORED:
                continue
            resource = self._catalog.resources[key]
            for index, body in enumerate(bodies[:STORED_OF_A_KIND]):
                name = body["metadata"].get("name", "n")
                stored = self._store_as(resource, body, f"u{index}-{name}"[:60].rstrip("-."))
                if stored is None and index < STORED_BY_THEIR_NAME:
                    stored = self._store_as(resource, body, name)
                if stored is not None:
                    self.setup.stored.append(stored)

    def _store_as(self, resource: Resource, body: dict, name: str) -> Stored | None:
        body = copy.deepcopy(body)
        metadata = body["metadata"]
        metadata["name"] = name
        annotations = metadata.setdefault("annotations", {})
        # Coracle's nodes leave it alone.
        annotations["sim.coracle.dev/ignore"] = "true"
        for annotation in DEFAULT_CLASSES:
            annotations.pop(annotation, None)
        body.pop("globalDefault", None)
        path = collection_of(resource)
        if not self._create(Request("POST", path, body)):
            return None
        return Stored(resource, f"{path}/{name}", body)


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
