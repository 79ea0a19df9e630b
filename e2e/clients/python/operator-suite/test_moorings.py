"""The suite of the operator: ten tests, each of them twenty times, or as often as CORACLE_TESTS, the number of all, says."""

import os
from contextlib import contextmanager

import pytest
from kubernetes.client.rest import ApiException

from conftest import IMAGE, resource
from harbour import GROUP, VERSION

ROTTEN = "rotten.example/boat:1"


@pytest.fixture(params=range(int(os.environ.get("CORACLE_TESTS", "200")) // 10))
def boats(request):
    return 1 + request.param % 5


def test_a_mooring_becomes_ready(state, boats):
    mooring = state.moor(boats)
    assert mooring["status"]["ready"] == boats
    settings = state.core.read_namespaced_config_map("tender", state.namespace)
    fleet = state.apps.read_namespaced_deployment("tender", state.namespace)
    assert (settings.data, fleet.spec.replicas) == ({"boats": str(boats)}, boats)
    for owned in (settings, fleet):
        [owner] = owned.metadata.owner_references
        assert (owner.uid, owner.controller) == (mooring["metadata"]["uid"], True)
    read_berth(state)


def test_a_mooring_is_scaled(state, boats):
    state.moor(boats)
    for count in (boats + 3, boats):
        state.patch(boats=count)
        assert state.until_ready()["status"]["ready"] == count


def test_a_mooring_follows_its_image(state, boats):
    state.moor(boats)
    state.patch(image="quay.example/boat:2")
    state.until_ready()
    pods = state.core.list_namespaced_pod(state.namespace).items
    images = {pod.spec.containers[0].image for pod in pods if not pod.metadata.deletion_timestamp}
    assert images == {"quay.example/boat:2"}


def test_a_mooring_restores_what_it_owns(state, boats):
    state.moor(boats)
    uid = state.core.patch_namespaced_config_map("tender", state.namespace, {"data": {"boats": "forged"}}).metadata.uid

    def is_restored(settings):
        return settings and settings["data"] == {"boats": str(boats)}

    state.until(is_restored, list_objects=state.core.list_namespaced_config_map)
    state.core.delete_namespaced_config_map("tender", state.namespace)
    state.until(
        lambda settings: is_restored(settings) and settings["metadata"]["uid"] != uid,
        list_objects=state.core.list_namespaced_config_map,
    )


def test_a_mooring_is_finalized(state, boats):
    state.moor(boats)
    state.delete()
    state.until(is_gone)
    with refused(404):
        read_berth(state)
    # The garbage collector follows.
    state.until(is_gone, list_objects=state.core.list_namespaced_config_map)
    state.until(is_gone, list_objects=state.apps.list_namespaced_deployment)
    state.expect_no_pods()


def test_a_mooring_is_deleted_in_the_foreground(state, boats):
    state.moor(boats)
    state.delete(propagation_policy="Foreground")
    state.until(is_gone)
    # What it owned was deleted before.
    with refused(404):
        state.core.read_namespaced_config_map("tender", state.namespace)
    with refused(404):
        state.apps.read_namespaced_deployment("tender", state.namespace)


def test_a_mooring_is_refused_for_its_image(state, boats):
    with refused(403, "harbour main forbids images of rotten.example"):
        state.create(boats, image=ROTTEN)
    state.expect_no_pods()


def test_a_mooring_keeps_its_image(state, boats):
    state.moor(boats)
    with refused(403, "harbour main forbids images of rotten.example"):
        state.patch(image=ROTTEN)
    fleet = state.apps.read_namespaced_deployment("tender", state.namespace)
    assert (fleet.metadata.generation, fleet.spec.template.spec.containers[0].image) == (1, IMAGE)


def test_a_mooring_has_limits(state, boats):
    for count in (-boats, 0, 20 + boats):
        with refused(422, "spec.boats"):
            state.create(count)
    state.expect_no_pods()


@pytest.mark.exclusive
def test_a_new_harbour_is_obeyed(state, boats):
    state.moor(boats)
    strict = resource("Harbour", "strict", {"forbidden": ["quay.example"]})
    state.custom.create_cluster_custom_object(GROUP, VERSION, "harbours", strict)
    with refused(403, "harbour strict forbids images of quay.example"):
        state.create(boats, name="second")
    # The first one goes on.
    state.patch(boats=boats + 1)
    state.until_ready()

    state.custom.delete_cluster_custom_object(GROUP, VERSION, "harbours", "strict")
    state.moor(boats, "second")


def is_gone(current):
    return current is None


def read_berth(state):
    state.custom.get_cluster_custom_object(GROUP, VERSION, "berths", f"{state.namespace}-tender")


@contextmanager
def refused(status, reason=""):
    """Expects that the server refuses a request."""
    with pytest.raises(ApiException) as caught:
        yield
    assert (caught.value.status, reason in caught.value.body) == (status, True), caught.value
