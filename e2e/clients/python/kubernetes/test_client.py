"""The official Python client: typed, watch and dynamic."""

import threading
import time

import pytest
from kubernetes import client, dynamic, utils, watch
from kubernetes.client.rest import ApiException
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

DEADLINE = 30

BOATS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "boats.python.coracle.dev"},
    "spec": {
        "group": "python.coracle.dev",
        "scope": "Namespaced",
        "names": {"plural": "boats", "singular": "boat", "kind": "Boat"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "properties": {"seats": {"type": "integer"}}}},
                    }
                },
            }
        ],
    },
}


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


def until(what, condition):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_typed_objects_are_created_changed_and_deleted(api, namespace):
    core = client.CoreV1Api(api)
    created = core.create_namespaced_config_map(namespace, config_map("settings", colour="blue"))
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_config_map(namespace, config_map("settings"))
    assert refused.value.status == 409 and "AlreadyExists" in refused.value.body

    patched = core.patch_namespaced_config_map("settings", namespace, {"data": {"size": "small"}})
    assert patched.data == {"colour": "blue", "size": "small"}
    with pytest.raises(ApiException) as refused:
        core.replace_namespaced_config_map("settings", namespace, created)
    assert refused.value.status == 409 and "Conflict" in refused.value.body
    patched.data = {"colour": "green"}
    assert core.replace_namespaced_config_map("settings", namespace, patched).data == {"colour": "green"}

    core.delete_namespaced_config_map("settings", namespace)
    with pytest.raises(ApiException) as refused:
        core.read_namespaced_config_map("settings", namespace)
    assert refused.value.status == 404


def test_lists_are_paged(api, namespace):
    core = client.CoreV1Api(api)
    for number in range(25):
        core.create_namespaced_config_map(namespace, config_map(f"map-{number:02}"))
    names, token = [], None
    while token != "":
        page = core.list_namespaced_config_map(
            namespace, limit=10, _continue=token, field_selector="metadata.name!=kube-root-ca.crt"
        )
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue or ""
    assert names == [f"map-{number:02}" for number in range(25)]


def test_a_watch_continues_from_its_list(api, namespace):
    core = client.CoreV1Api(api)
    core.create_namespaced_config_map(namespace, config_map("before"))
    version = core.list_namespaced_config_map(namespace).metadata.resource_version

    def write():
        core.create_namespaced_config_map(namespace, config_map("settings", n="1"))
        core.patch_namespaced_config_map("settings", namespace, {"data": {"n": "2"}})
        core.delete_namespaced_config_map("settings", namespace)

    writer = threading.Thread(target=write)
    writer.start()
    events = []
    stream = watch.Watch()
    for event in stream.stream(
        core.list_namespaced_config_map,
        namespace,
        resource_version=version,
        field_selector="metadata.name=settings",
        timeout_seconds=DEADLINE,
    ):
        events.append((event["type"], event["object"].data["n"]))
        if event["type"] == "DELETED":
            stream.stop()
    writer.join()
    assert events == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]


def test_a_watch_from_the_forgotten_past_is_gone(api, namespace):
    core = client.CoreV1Api(api)
    with pytest.raises(ApiException) as refused:
        core.list_namespaced_config_map(namespace, resource_version="999999999", resource_version_match="Exact")
    assert refused.value.status == 504, refused.value.body


def test_a_stateful_set_from_yaml_becomes_ready_and_scales(api, namespace):
    utils.create_from_dict(
        api,
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "db"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "db"}},
                "template": {
                    "metadata": {"labels": {"app": "db"}},
                    "spec": {"containers": [{"name": "db", "image": "db:1"}]},
                },
            },
        },
        namespace=namespace,
    )
    apps = client.AppsV1Api(api)

    def ready(count):
        return lambda: apps.read_namespaced_stateful_set_status("db", namespace).status.ready_replicas == count

    until("one ready", ready(1))
    apps.patch_namespaced_stateful_set_scale("db", namespace, {"spec": {"replicas": 3}})
    until("three ready", ready(3))
    log = client.CoreV1Api(api).read_namespaced_pod_log("db-2", namespace, _preload_content=False)
    assert log.data.endswith(b"\n")


def test_the_dynamic_client_discovers_applies_and_watches(api, namespace):
    dynamic_client = dynamic.DynamicClient(api)
    definitions = dynamic_client.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
    definitions.create(body=BOATS)

    def established():
        status = definitions.get(name=BOATS["metadata"]["name"]).to_dict().get("status", {})
        return {"Established": "True"}.items() <= {c["type"]: c["status"] for c in status.get("conditions") or []}.items()

    until("Established", established)

    def discovered():
        dynamic_client.resources.invalidate_cache()
        return dynamic_client.resources.search(kind="Boat")

    until("discovery", discovered)
    boats = dynamic_client.resources.get(api_version="python.coracle.dev/v1", kind="Boat")

    boat = {"apiVersion": "python.coracle.dev/v1", "kind": "Boat", "metadata": {"name": "coracle"}, "spec": {"seats": 1}}
    applied = boats.server_side_apply(body=boat, name="coracle", namespace=namespace, field_manager="builder")
    assert applied.metadata.managedFields[0].manager == "builder"
    more = {**boat, "spec": {"seats": 2}}
    with pytest.raises(ConflictError):
        boats.server_side_apply(body=more, name="coracle", namespace=namespace, field_manager="other")
    forced = boats.server_side_apply(
        body=more, name="coracle", namespace=namespace, field_manager="other", force_conflicts=True
    )
    assert forced.spec.seats == 2

    for event in boats.watch(namespace=namespace, timeout=DEADLINE):
        assert (event["type"], event["object"].metadata.name) == ("ADDED", "coracle")
        break
    boats.delete(name="coracle", namespace=namespace)
    with pytest.raises(NotFoundError):
        boats.get(name="coracle", namespace=namespace)
    definitions.delete(name=BOATS["metadata"]["name"])
