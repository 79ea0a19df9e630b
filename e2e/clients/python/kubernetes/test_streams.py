"""The official Python client: commands, logs, forwarded ports and proxies of simulated pods."""

import base64
import json
import queue
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import pytest
from kubernetes import client, watch
from kubernetes.client.rest import ApiException
from kubernetes.stream import portforward, stream

DEADLINE = 30
# Not text in any encoding: each byte, and more than a message or a frame holds.
BINARY = bytes(range(256)) * 400

ANSWERS = {
    "ls *": {"stdout": "bin\netc\n"},
    "ls /none": {"stdout": "before\n", "stderr": "ls: /none: No such file or directory\n", "exitCode": 2},
    "cat /data": {"stdoutBase64": base64.b64encode(BINARY).decode()},
    "log:ls *": {"stdout": "of the other container\n"},
}


class Site(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        asked = {"method": self.command, "path": self.path, "body": body, "authorization": self.headers["Authorization"]}
        answer = json.dumps(asked).encode()
        if self.path == "/page":
            answer = b'<a href="/there">there</a><a href="here">here</a><a href="http://192.0.2.1/x">x</a>'
        self.send_response(404 if "missing" in self.path else 200)
        self.send_header("Content-Type", "text/html" if self.path == "/page" else "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = answer

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site():
    """The port of an HTTP server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def echo():
    """The port of a server that returns what it reads, and then ends the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with ThreadPoolExecutor() as connections:
                while True:
                    try:
                        connection, _ = listener.accept()
                    except OSError:
                        return
                    connections.submit(copy, connection)

        def copy(connection):
            with connection:
                connection.settimeout(DEADLINE)
                while data := connection.recv(1 << 16):
                    connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(DEADLINE)
        assert not thread.is_alive(), "a connection has not ended"


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def run_pod(api, namespace, annotations, *containers, **spec):
    """Creates the pod web, and returns once it is ready."""
    core = client.CoreV1Api(api)
    containers = containers or ({"name": "web", "ports": [{"containerPort": 80}]},)
    pod = {
        "metadata": {
            "name": "web",
            "labels": {"app": "web"},
            "annotations": {f"sim.coracle.dev/{name}": value for name, value in annotations.items()},
        },
        "spec": {"containers": [{"image": "image:1", **container} for container in containers], **spec},
    }
    core.create_namespaced_pod(namespace, pod)
    events = watch.Watch()
    for event in events.stream(
        core.list_namespaced_pod, namespace, field_selector="metadata.name=web", timeout_seconds=DEADLINE
    ):
        if any(c.type == "Ready" and c.status == "True" for c in event["object"].status.conditions or []):
            events.stop()
            return core
    raise AssertionError("the pod is not ready")


def execute(core, namespace, *command, **options):
    """The output, the output of errors and the exit code."""
    options = {"stdin": False, "stdout": True, "stderr": True, "tty": False, **options}
    process = stream(
        core.connect_get_namespaced_pod_exec, "web", namespace, command=list(command), _preload_content=False, **options
    )
    process.run_forever(timeout=DEADLINE)
    assert not process.is_open(), "the command has not ended"
    return process.read_stdout(), process.read_stderr(), process.returncode


@contextmanager
def forwarded(core, namespace, *ports):
    forward = portforward(core.connect_get_namespaced_pod_portforward, "web", namespace, ports=",".join(map(str, ports)))
    for port in ports:
        forward.socket(port).settimeout(DEADLINE)
    try:
        yield forward
    finally:
        forward.close()


@contextmanager
def refused(*texts):
    """Expects that a connection is refused with all of these texts."""
    # The client fails to report an error that has no body, and has then another one: of `body.decode`.
    with pytest.raises((ApiException, AttributeError)) as caught:
        yield
    error = caught.value if isinstance(caught.value, ApiException) else caught.value.__context__
    assert isinstance(error, ApiException) and all(text in error.reason for text in texts), error


def read_to_end(connection):
    data = b""
    while more := connection.recv(1 << 16):
        data += more
    return data


def test_a_command_answers_as_the_pod_says(api, namespace):
    core = run_pod(api, namespace, {"exec": json.dumps(ANSWERS)}, {"name": "web"}, {"name": "log"})
    in_web = {"container": "web"}
    assert execute(core, namespace, "ls", "/", **in_web) == ("bin\netc\n", "", 0)
    assert execute(core, namespace, "ls", "/", container="log") == ("of the other container\n", "", 0)
    assert execute(core, namespace, "ls", "/none", **in_web) == ("before\n", "ls: /none: No such file or directory\n", 2)
    # A terminal has one output, in which each line begins at the left.
    terminal = execute(core, namespace, "ls", "/none", tty=True, **in_web)
    assert terminal == ("before\r\nls: /none: No such file or directory\r\n", "", 2)

    text = stream(
        core.connect_get_namespaced_pod_exec, "web", namespace, command=["ls", "/"], stdout=True, stderr=True, **in_web
    )
    assert text == "bin\netc\n"


def test_a_command_that_says_what_it_does_is_followed(api, namespace):
    core = run_pod(api, namespace, {})
    assert execute(core, namespace, "sh", "-c", "echo one; exit 3") == ("one\n", "", 3)
    assert execute(core, namespace, "sh", "-c", "echo one; echo two >&2") == ("one\n", "two\n", 0)
    begun = time.monotonic()
    assert execute(core, namespace, "sh", "-c", "echo one; sleep 1; echo two") == ("one\ntwo\n", "", 0)
    assert time.monotonic() - begun >= 1
    process = stream(
        core.connect_get_namespaced_pod_exec,
        "web",
        namespace,
        command=["sh", "-c", "echo ready; sleep 3600"],
        stdin=True,
        stdout=True,
        stderr=True,
        _preload_content=False,
    )
    assert process.readline_stdout(timeout=DEADLINE) == "ready"
    process.write_stdin("a line\n")
    assert process.is_open() and process.returncode is None
    # A process is killed with its container.
    core.delete_namespaced_pod("web", namespace, grace_period_seconds=0)
    process.run_forever(timeout=DEADLINE)
    assert process.returncode == 137


def test_a_command_writes_bytes(api, namespace):
    core = run_pod(api, namespace, {"exec": json.dumps(ANSWERS)})
    assert execute(core, namespace, "cat", "/data", binary=True) == (BINARY, b"", 0)
    whole = stream(
        core.connect_get_namespaced_pod_exec, "web", namespace, command=["cat", "/data"], stdout=True, stderr=True, binary=True
    )
    assert whole == BINARY


def test_a_command_that_is_not_simulated_is_refused(api, namespace):
    core = run_pod(api, namespace, {})
    stdout, stderr, code = execute(core, namespace, "nginx", "-t")
    assert (stdout, code, 'exec of "nginx -t" is not simulated' in stderr) == ("", 127, True)
    with refused("404", "Not Found"):
        stream(core.connect_get_namespaced_pod_exec, "none", namespace, command=["ls"], stdout=True)


def test_an_attached_client_sees_what_is_written_until_the_container_ends(api, namespace):
    command = ["sh", "-c", "sleep 2; echo one; sleep 1; echo two; exit 1"]
    core = run_pod(api, namespace, {}, {"name": "web", "command": command}, restartPolicy="Never")
    process = stream(
        core.connect_get_namespaced_pod_attach, "web", namespace, stdout=True, stderr=True, _preload_content=False
    )
    process.run_forever(timeout=DEADLINE)
    assert (process.is_open(), process.read_stdout(), process.read_stderr()) == (False, "one\ntwo\n", "")


def test_a_log_is_followed_to_its_end(api, namespace):
    command = ["sh", "-c", "echo one; sleep 1; echo two"]
    core = run_pod(api, namespace, {}, {"name": "web", "command": command}, restartPolicy="Never")
    lines = watch.Watch().stream(core.read_namespaced_pod_log, "web", namespace, _request_timeout=DEADLINE)
    assert list(lines) == ["one", "two"]


def test_ports_lead_to_local_processes(api, namespace, site, echo):
    core = run_pod(api, namespace, {"forward": f"80=127.0.0.1:{site}, 7=localhost:{echo}"})
    with forwarded(core, namespace, 80, 7) as forward:
        # The connections are there at once, and do not wait for each other.
        web = HTTPConnection("web")
        web.sock = forward.socket(80)
        for number in range(3):
            web.request("PUT", f"/{number}", body="x" * number)
            asked = json.load(web.getresponse())
            assert (asked["method"], asked["path"], asked["body"]) == ("PUT", f"/{number}", "x" * number)
            forward.socket(7).sendall(b"hello %d" % number)
            assert forward.socket(7).recv(100) == b"hello %d" % number
        assert (forward.error(80), forward.error(7)) == (None, None)


def test_much_data_arrives_both_ways(api, namespace, echo):
    core = run_pod(api, namespace, {"forward": f"7=127.0.0.1:{echo}"})
    random = Random(7)
    with forwarded(core, namespace, 7) as forward:
        connection = forward.socket(7)
        # The client blocks while it sends, so that not more may be on its way than the connections hold.
        for _ in range(80):
            sent, received = random.randbytes(1 << 16), b""
            connection.sendall(sent)
            while len(received) < len(sent):
                received += connection.recv(1 << 16)
            assert received == sent
        assert forward.error(7) is None


def test_the_end_of_a_process_is_the_end_of_its_connection(api, namespace):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        core = run_pod(api, namespace, {"forward": f"25=127.0.0.1:{listener.getsockname()[1]}"})
        with forwarded(core, namespace, 25) as forward:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"220 ready\r\n")
            assert read_to_end(forward.socket(25)) == b"220 ready\r\n"


@pytest.mark.parametrize("mapped", [True, False])
def test_a_port_that_leads_nowhere_has_an_error_and_others_go_on(api, namespace, echo, mapped):
    nowhere = f", 81=127.0.0.1:{unused_port()}" if mapped else ""
    core = run_pod(api, namespace, {"forward": f"7=127.0.0.1:{echo}{nowhere}"})
    with forwarded(core, namespace, 7, 81) as forward:
        assert read_to_end(forward.socket(81)) == b""
        assert "error forwarding port 81 to pod web" in forward.error(81)
        forward.socket(7).sendall(b"hello")
        assert forward.socket(7).recv(100) == b"hello"
        assert forward.error(7) is None


def test_ports_of_a_pod_without_processes_are_refused(api, namespace):
    core = run_pod(api, namespace, {})
    forward = portforward(core.connect_get_namespaced_pod_portforward, "web", namespace, ports="80")
    forward.socket(80).settimeout(DEADLINE)
    assert forward.socket(80).recv(1) == b""
    assert "sim.coracle.dev/forward" in forward.error(80)


def test_a_pod_is_reached_through_its_proxy(api, namespace, site):
    core = run_pod(api, namespace, {"forward": f"80=127.0.0.1:{site}, 8080=127.0.0.1:{unused_port()}"})
    for name in ["web", "web:80", "http:web:80"]:
        response = core.connect_get_namespaced_pod_proxy_with_path(name, namespace, "index", _preload_content=False)
        asked = json.loads(response.data)
        assert (response.status, asked["method"], asked["path"]) == (200, "GET", "/index")
        # The credentials are for the API server alone.
        assert asked["authorization"] is None
    response = core.connect_post_namespaced_pod_proxy("web", namespace, _preload_content=False)
    assert (json.loads(response.data)["method"], response.status) == ("POST", 200)
    for name, path, code, text in [
        ("web", "missing", 404, '"path": "/missing"'),
        ("web:8080", "index", 503, "error trying to reach service: dial tcp"),
        ("web:81", "index", 501, "sim.coracle.dev/forward"),
        ("none", "index", 404, 'pods \\"none\\" not found'),
    ]:
        with pytest.raises(ApiException) as refused:
            core.connect_get_namespaced_pod_proxy_with_path(name, namespace, path)
        assert (refused.value.status, text in refused.value.body) == (code, True), refused.value


def test_a_proxy_keeps_the_length_of_an_answer(api, namespace, site):
    core = run_pod(api, namespace, {"forward": f"80=127.0.0.1:{site}"})
    response = core.connect_get_namespaced_pod_proxy_with_path("web", namespace, "index", _preload_content=False)
    assert response.headers.get("Content-Length") == str(len(response.data))


def test_a_proxy_of_another_scheme_is_refused(api, namespace, site):
    core = run_pod(api, namespace, {"forward": f"80=127.0.0.1:{site}"})
    for name in ["ftp:web:80", "http:web:80:x"]:
        with pytest.raises(ApiException) as refused:
            core.connect_get_namespaced_pod_proxy_with_path(name, namespace, "index")
        assert (refused.value.status, f'invalid pod request \\"{name}\\"' in refused.value.body) == (400, True), refused.value


def test_a_service_is_reached_through_its_proxy(api, namespace, site):
    core = run_pod(api, namespace, {"forward": f"80=127.0.0.1:{site}"})
    ports = [{"name": "web", "port": 8000, "targetPort": 80}]
    core.create_namespaced_service(namespace, {"metadata": {"name": "site"}, "spec": {"selector": {"app": "web"}, "ports": ports}})
    deadline = time.monotonic() + DEADLINE
    for name in ["site:8000", "site:web", "http:site:web"]:
        while True:
            try:
                response = core.connect_get_namespaced_service_proxy_with_path(name, namespace, "index", _preload_content=False)
                break
            except ApiException as error:
                # Its endpoints are not known yet.
                assert error.status == 503 and "no endpoints available" in error.body, error
                assert time.monotonic() < deadline, error
                time.sleep(0.01)
        assert (response.status, json.loads(response.data)["path"]) == (200, "/index")
    with pytest.raises(ApiException) as refused:
        core.connect_get_namespaced_service_proxy_with_path("site:9", namespace, "index")
    assert refused.value.status == 503 and "no service port 9 found" in refused.value.body
