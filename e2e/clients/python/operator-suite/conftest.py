"""The state that a test begins with: definitions and fixtures, a running operator, and a namespace without Moorings.

`CORACLE_STATE` chooses the control plane: a `fork` of a template for each test, one of its `own` that is set up anew, or one that is
`shared`, with clean-up. The last two are here to be compared with the first one.
"""

import contextlib
import fcntl
import os
import pathlib

import pytest
import pytest_coracle
import yaml
from kubernetes import client, config, watch

from harbour import GROUP, VERSION, ignored, moorings, operate

STATE = os.environ.get("CORACLE_STATE", "fork")
DEFINITIONS = pathlib.Path(__file__).parents[2] / "harbour" / "definitions.yaml"
IMAGE = "quay.example/boat:1"
# Far longer than anything should take.
DEADLINE = 60

LIGHTHOUSE = {
    "metadata": {"name": "lighthouse"},
    "spec": {
        "selector": {"matchLabels": {"app": "lighthouse"}},
        "template": {
            "metadata": {"labels": {"app": "lighthouse"}},
            "spec": {"containers": [{"name": "lighthouse", "image": IMAGE}]},
        },
    },
}


class State:
    """What a test has: a client of the administrator, and a namespace."""

    def __init__(self, api, namespace, control_plane):
        self.api, self.namespace, self.control_plane = api, namespace, control_plane
        self.core, self.apps, self.custom = client.CoreV1Api(api), client.AppsV1Api(api), client.CustomObjectsApi(api)
        self.moorings = moorings(namespace)

    def create(self, boats, image=IMAGE, name="tender"):
        """Creates a Mooring."""
        body = resource("Mooring", name, {"boats": boats, "image": image})
        return self.custom.create_namespaced_custom_object(*self.moorings, body)

    def moor(self, boats, name="tender"):
        """Creates a Mooring, and waits until it is ready."""
        self.create(boats, name=name)
        return self.until_ready(name)

    def patch(self, **spec):
        return self.custom.patch_namespaced_custom_object(*self.moorings, "tender", {"spec": spec})

    def delete(self, name="tender", **options):
        self.custom.delete_namespaced_custom_object(*self.moorings, name, **options)

    def until_ready(self, name="tender"):
        def is_ready(mooring):
            return any(
                condition["status"] == "True" and condition["observedGeneration"] == mooring["metadata"]["generation"]
                for condition in mooring.get("status", {}).get("conditions", [])
            )

        return self.until(lambda mooring: mooring and is_ready(mooring), name)

    def until(self, condition, name="tender", list_objects=None):
        """Watches an object until a condition holds of it, or of None while it does not exist. It is a Mooring if nothing else is listed."""
        listing = (list_objects, self.namespace)
        if list_objects is None:
            listing = (self.custom.list_namespaced_custom_object, *self.moorings)
        list_objects, *arguments = listing
        selector = f"metadata.name={name}"
        listed = self.api.sanitize_for_serialization(list_objects(*arguments, field_selector=selector))
        current = next(iter(listed["items"]), None)
        version = listed["metadata"]["resourceVersion"]
        events = watch.Watch().stream(
            list_objects, *arguments, field_selector=selector, resource_version=version, timeout_seconds=DEADLINE
        )
        while not condition(current):
            event = next(events, None)
            assert event, f"{name} is not as it should be after {DEADLINE} s: {current}"
            current = None if event["type"] == "DELETED" else event["raw_object"]
        events.close()
        return current

    def expect_no_pods(self):
        """Checks that there are no pods, and that none will come. Neighbours keep a shared control plane from settling."""
        if STATE != "shared":
            self.control_plane.settle()
            assert not self.core.list_namespaced_pod(self.namespace).items


def resource(kind, name, spec=None):
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec or {}}


def set_up(control_plane):
    """Creates the definitions, and 100 fixtures, one of which is a workload that runs."""
    with config.new_client_from_config(control_plane.kubeconfig) as api:
        for definition in yaml.safe_load_all(DEFINITIONS.read_text()):
            client.ApiextensionsV1Api(api).create_custom_resource_definition(definition)
        # From then on they are served.
        control_plane.settle()
        custom = client.CustomObjectsApi(api)
        custom.create_cluster_custom_object(GROUP, VERSION, "harbours", resource("Harbour", "main"))
        client.AppsV1Api(api).create_namespaced_deployment("kube-public", LIGHTHOUSE)
        for number in range(98):
            kind = ["Buoy", "Crane", "Pier", "Pilot", "Tug"][number % 5]
            body = resource(kind, f"fixture-{number}", {"position": number})
            custom.create_namespaced_custom_object(GROUP, VERSION, "default", f"{kind.lower()}s", body)
    control_plane.settle()


@contextlib.contextmanager
def operated(control_plane):
    """The state of a test that has a control plane for itself."""
    with config.new_client_from_config(control_plane.kubeconfig) as api, operate(api):
        yield State(api, "default", control_plane)


@pytest.fixture(scope="session")
def coracle_template(coracle_template):
    set_up(coracle_template)
    return coracle_template


@pytest.fixture
def state(request):
    if STATE == "fork":
        with operated(request.getfixturevalue("coracle_fork")) as state:
            yield state
    elif STATE == "own":
        control_plane = request.getfixturevalue("coracle")
        set_up(control_plane)
        with operated(control_plane) as state:
            yield state
    elif STATE == "shared":
        with shared(request.config.shared_kubeconfig, request.node.get_closest_marker("exclusive")) as state:
            yield state
    else:
        pytest.fail(f"CORACLE_STATE is {STATE!r}: not fork, own or shared")


@contextlib.contextmanager
def shared(kubeconfig, is_exclusive):
    """The state of a test in the control plane of all, in a namespace of its own. An exclusive test has no other one beside it."""
    with open(f"{kubeconfig}.lock", "w") as lock, config.new_client_from_config(kubeconfig) as api:
        fcntl.flock(lock, fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH)
        core = client.CoreV1Api(api)
        namespace = core.create_namespace({"metadata": {"generateName": "test-"}}).metadata.name
        state = State(api, namespace, None)
        try:
            yield state
        finally:
            for mooring in state.custom.list_namespaced_custom_object(*state.moorings)["items"]:
                name = mooring["metadata"]["name"]
                # What it owns is gone before it is.
                with ignored(404):
                    state.delete(name, propagation_policy="Foreground")
                state.until(lambda mooring: mooring is None, name)
            with ignored(404):
                state.custom.delete_cluster_custom_object(GROUP, VERSION, "harbours", "strict")
            # This is not waited for: no other test uses it, and it takes seconds by design.
            core.delete_namespace(namespace)


def pytest_configure(config):
    """Starts the control plane and the operator of all tests, in the process that hands the tests out."""
    config.addinivalue_line("markers", "exclusive: changes what other tests rely on")
    if STATE != "shared":
        return
    if hasattr(config, "workerinput"):
        config.shared_kubeconfig = config.workerinput["kubeconfig"]
        return
    stack = contextlib.ExitStack()
    config.add_cleanup(stack.close)
    control_plane = stack.enter_context(pytest_coracle.start())
    set_up(control_plane)
    stack.enter_context(operated(control_plane))
    config.shared_kubeconfig = control_plane.kubeconfig


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Passes the control plane to a process of pytest-xdist."""
    if STATE == "shared":
        node.workerinput["kubeconfig"] = node.config.shared_kubeconfig
