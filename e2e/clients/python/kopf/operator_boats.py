"""An operator on kopf: a ConfigMap for each boat, and an archive entry when the boat is deleted."""

import kopf
import kubernetes


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.level = 30
    settings.persistence.finalizer = "kopf.coracle.dev/archive"
    settings.peering.standalone = True


@kopf.on.create("kopf.coracle.dev", "v1", "boats")
@kopf.on.update("kopf.coracle.dev", "v1", "boats")
def publish(spec, name, namespace, **_):
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"seats": str(spec["seats"])},
    }
    kopf.adopt(body)
    core = kubernetes.client.CoreV1Api()
    try:
        core.create_namespaced_config_map(namespace, body)
    except kubernetes.client.ApiException as error:
        if error.status != 409:
            raise
        core.patch_namespaced_config_map(name, namespace, body)
    return {"seats": spec["seats"]}


@kopf.on.delete("kopf.coracle.dev", "v1", "boats")
def archive(name, namespace, **_):
    body = {"metadata": {"name": f"archived-{name}"}}
    kubernetes.client.CoreV1Api().create_namespaced_config_map(namespace, body)
