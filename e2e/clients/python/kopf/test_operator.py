"""The operator, run by kopf beside the tests, with the control plane in KUBECONFIG: `coracle run -- pytest`."""

import os
import time

import pytest
from kopf.testing import KopfRunner
from kubernetes import client, config
from kubernetes.client.rest import ApiException

DEADLINE = 30
GROUP, VERSION, PLURAL, NAMESPACE = "kopf.coracle.dev", "v1", "boats", "default"
OPERATOR = os.path.join(os.path.dirname(__file__), "operator_boats.py")

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "singular": "boat", "kind": "Boat"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"seats": {"type": "integer"}}},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


def until(what, condition):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.fixture
def operator():
    config.load_kube_config()
    client.ApiextensionsV1Api().create_custom_resource_definition(DEFINITION)

    def served():
        try:
            client.CustomObjectsApi().list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL)
        except ApiException:
            return False
        return True

    until("the kind is served", served)
    with KopfRunner(["run", "--namespace", NAMESPACE, OPERATOR], timeout=DEADLINE) as runner:
        yield runner
    assert runner.exit_code == 0 and runner.exception is None, runner.output


def read_config_map(name):
    try:
        return client.CoreV1Api().read_namespaced_config_map(name, NAMESPACE)
    except ApiException as error:
        if error.status != 404:
            raise
        return None


def test_boats_are_published_updated_and_archived(operator):
    boats = client.CustomObjectsApi()
    boat = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Boat", "metadata": {"name": "coracle"}, "spec": {"seats": 1}}
    boats.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, boat)

    def published(seats):
        found = read_config_map("coracle")
        return found is not None and found.data == {"seats": str(seats)}

    def status(seats):
        read = boats.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, "coracle")
        return read.get("status", {}).get("publish", {}).get("seats") == seats

    until("the config map", lambda: published(1))
    until("the status", lambda: status(1))
    read = boats.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, "coracle")
    assert read["metadata"]["finalizers"] == ["kopf.coracle.dev/archive"]

    boats.patch_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, "coracle", {"spec": {"seats": 2}})
    until("the change", lambda: published(2))
    until("its status", lambda: status(2))

    boats.delete_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, "coracle")
    until("the archive", lambda: read_config_map("archived-coracle") is not None)
    # The boat's config map is deleted with its owner.
    until("the deletion", lambda: read_config_map("coracle") is None)
