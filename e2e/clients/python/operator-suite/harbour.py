"""An operator on the `kubernetes` client: a Deployment, a ConfigMap and a Berth for each Mooring, and a webhook that refuses images."""

import base64
import contextlib
import functools
import json
import queue
import ssl
import threading
import uuid
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import trustme
from kubernetes import client, watch
from kubernetes.client.rest import ApiException

GROUP, VERSION = "harbour.example", "v1"
FINALIZER = "harbour.example/berth"
LABEL = "harbour.example/mooring"
APPLY = {"field_manager": "harbour", "force": True, "_content_type": "application/apply-patch+yaml"}

AUTHORITY = trustme.CA()
CERTIFICATE = AUTHORITY.issue_cert("127.0.0.1")


class Operator:
    """Reconciles the Moorings of a control plane, in threads of its own, within a `with` block."""

    def __init__(self, api):
        self.core, self.apps, self.custom = client.CoreV1Api(api), client.AppsV1Api(api), client.CustomObjectsApi(api)
        # The namespaces and names of Moorings, each at most once; None ends the work.
        self.queue, self.queued = queue.SimpleQueue(), set()
        self.watches = []
        self.is_stopping = False

    def __enter__(self):
        dependents = {"label_selector": LABEL}
        self.run(self.work)
        self.run(self.follow, self.custom.list_custom_object_for_all_namespaces, GROUP, VERSION, "moorings")
        self.run(self.follow, self.apps.list_deployment_for_all_namespaces, **dependents)
        self.run(self.follow, self.core.list_config_map_for_all_namespaces, **dependents)
        return self

    def __exit__(self, *_):
        self.is_stopping = True
        self.queue.put(None)
        for events in self.watches:
            events.stop()

    def run(self, function, *arguments, **options):
        def target():
            try:
                function(*arguments, **options)
            except Exception:
                if not self.is_stopping:
                    raise

        threading.Thread(target=target, daemon=True).start()

    def follow(self, list_objects, *arguments, **options):
        """Enqueues the Mooring of each object that changes; its name is that of what it owns."""
        events = watch.Watch()
        self.watches.append(events)
        for event in events.stream(list_objects, *arguments, **options):
            metadata = event["raw_object"]["metadata"]
            self.enqueue((metadata["namespace"], metadata["name"]))

    def enqueue(self, key):
        if key not in self.queued:
            self.queued.add(key)
            self.queue.put(key)

    def work(self):
        while key := self.queue.get():
            # What changes from here on is another reason to reconcile.
            self.queued.discard(key)
            try:
                self.reconcile(*key)
            except ApiException as error:
                if error.status not in (404, 409):
                    raise
                self.enqueue(key)

    def reconcile(self, namespace, name):
        place = (*moorings(namespace), name)
        try:
            mooring = self.custom.get_namespaced_custom_object(*place)
        except ApiException as error:
            if error.status == 404:
                return
            raise
        metadata, spec = mooring["metadata"], mooring["spec"]
        finalizers = metadata.setdefault("finalizers", [])
        # An object of the cluster cannot be owned by one of a namespace: the finalizer deletes it.
        berth = f"{namespace}-{name}"
        if "deletionTimestamp" in metadata:
            if FINALIZER in finalizers:
                with ignored(404):
                    self.custom.delete_cluster_custom_object(GROUP, VERSION, "berths", berth)
                finalizers.remove(FINALIZER)
                self.custom.replace_namespaced_custom_object(*place, mooring)
            return
        if FINALIZER not in finalizers:
            finalizers.append(FINALIZER)
            mooring = self.custom.replace_namespaced_custom_object(*place, mooring)
        # The status is written last.
        if "status" not in mooring:
            body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Berth", "metadata": {"name": berth}}
            with ignored(409):
                self.custom.create_cluster_custom_object(GROUP, VERSION, "berths", body)

        labels = {LABEL: name}
        owner = {key: mooring[key] for key in ("apiVersion", "kind")} | {"name": name, "uid": metadata["uid"]}
        owned = {
            "name": name,
            "labels": labels,
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        }
        self.core.patch_namespaced_config_map(
            name,
            namespace,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned, "data": {"boats": str(spec["boats"])}},
            **APPLY,
        )
        fleet = self.apps.patch_namespaced_deployment(
            name,
            namespace,
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": owned,
                "spec": {
                    "replicas": spec["boats"],
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {"containers": [{"name": "boat", "image": spec["image"]}]},
                    },
                },
            },
            **APPLY,
        )
        self.update_status(place, mooring, fleet)

    def update_status(self, place, mooring, fleet):
        counts = (fleet.status.replicas, fleet.status.updated_replicas, fleet.status.ready_replicas)
        is_observed = fleet.status.observed_generation == fleet.metadata.generation
        is_ready = is_observed and set(counts) == {mooring["spec"]["boats"]}
        condition = {
            "type": "Ready",
            "status": "True" if is_ready else "False",
            "reason": "Moored" if is_ready else "Arriving",
            "message": "",
            "observedGeneration": mooring["metadata"]["generation"],
        }
        before = mooring.get("status", {})
        [old] = before.get("conditions", [{}])
        changed_at = datetime.now(timezone.utc).isoformat()
        if old.get("status") == condition["status"]:
            changed_at = old["lastTransitionTime"]
        condition["lastTransitionTime"] = changed_at
        status = {"ready": fleet.status.ready_replicas or 0, "conditions": [condition]}
        if status != before:
            self.custom.patch_namespaced_custom_object_status(*place, {"status": status})


def moorings(namespace):
    """The first arguments of CustomObjectsApi for the Moorings of a namespace."""
    return GROUP, VERSION, namespace, "moorings"


@contextlib.contextmanager
def ignored(status):
    """Ignores an error of the server."""
    try:
        yield
    except ApiException as error:
        if error.status != status:
            raise


class Webhook(BaseHTTPRequestHandler):
    """Refuses images of the registries that a Harbour forbids."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        response = {"uid": request["uid"], "allowed": True}
        if reason := self.refusal(request["object"], request["oldObject"]):
            response |= {"allowed": False, "status": {"code": 403, "reason": "Forbidden", "message": reason}}
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refusal(self, mooring, old):
        image = mooring["spec"]["image"]
        # An image that was allowed once may stay, or else no finalizer could be removed.
        if old and old["spec"]["image"] == image:
            return None
        registry = image.split("/")[0]
        custom = self.server.control_planes[urlsplit(self.path).path]
        for harbour in custom.list_cluster_custom_object(GROUP, VERSION, "harbours")["items"]:
            if registry in harbour["spec"]["forbidden"]:
                return f"harbour {harbour['metadata']['name']} forbids images of {registry}"
        return None

    def log_message(self, *_):
        pass


@functools.cache
def webhook_server():
    """The server of the webhooks of all control planes, each of which has a path."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CERTIFICATE.configure_cert(context)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    # The handshake of a connection is in the thread of the connection.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.control_planes = {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@contextlib.contextmanager
def operate(api):
    """Runs the operator and its webhook for a control plane."""
    server = webhook_server()
    path = f"/{uuid.uuid4()}"
    server.control_planes[path] = client.CustomObjectsApi(api)
    register(api, f"https://127.0.0.1:{server.server_port}{path}")
    with Operator(api):
        yield
    del server.control_planes[path]


def register(api, url):
    """Makes the control plane call the webhook."""
    rule = {
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "resources": ["moorings"],
    }
    webhook = {
        "name": "images.harbour.example",
        "clientConfig": {"url": url, "caBundle": base64.b64encode(AUTHORITY.cert_pem.bytes()).decode()},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    client.AdmissionregistrationV1Api(api).create_validating_webhook_configuration(
        {"metadata": {"name": "harbour"}, "webhooks": [webhook]}
    )
