"""kr8s: commands, logs and forwarded ports of simulated pods, over WebSockets, with the control plane in KUBECONFIG."""

import errno
import json
import socket
import threading
import uuid
from contextlib import ExitStack, contextmanager
from random import Random

import kr8s
import pytest
from kr8s.objects import Pod

# kr8s names the latest version that it was tried with.
pytestmark = pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported")

DEADLINE = 30


def run_pod(annotations, **container):
    pod = Pod(
        {
            "metadata": {
                "name": f"web-{uuid.uuid4().hex[:8]}",
                "annotations": {f"sim.coracle.dev/{name}": value for name, value in annotations.items()},
            },
            "spec": {"containers": [{"name": "web", "image": "web:1", **container}]},
        },
        api=kr8s.api(),
    )
    pod.create()
    pod.wait("condition=Ready", timeout=DEADLINE)
    return pod


@contextmanager
def server(handle):
    """The port of a server on this machine that handles one connection after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(DEADLINE)
                    handle(connection)

        # A thread that a failed test leaves must not keep the process.
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(DEADLINE)
        assert not thread.is_alive(), "a connection has not ended"


def echo(connection):
    while data := connection.recv(1 << 16):
        connection.sendall(data)


@contextmanager
def forwarded(pod, port):
    with listening(pod, port) as local:
        with socket.create_connection(("127.0.0.1", local), timeout=DEADLINE) as connection:
            yield connection


@contextmanager
def listening(pod, port):
    """The local port of a forwarded port. kr8s takes one that was free, which another program can take before it listens."""
    with ExitStack() as stack:
        for attempt in range(1, 6):
            try:
                local = stack.enter_context(pod.portforward(remote_port=port, local_port=0))
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or attempt == 5:
                    raise
        yield local


def test_a_command_answers_as_the_pod_says():
    answers = {"ls *": {"stdout": "bin\n", "stderr": "a warning\n"}, "ls /none": {"stderr": "no such file\n", "exitCode": 2}}
    pod = run_pod({"exec": json.dumps(answers)})
    listed = pod.exec(["ls", "/"])
    assert (listed.stdout, listed.stderr, listed.returncode) == (b"bin\n", b"a warning\n", 0)
    failed = pod.exec(["ls", "/none"], check=False)
    assert (failed.stdout, failed.stderr, failed.returncode) == (b"", b"no such file\n", 2)
    followed = pod.exec(["sh", "-c", "echo a; exit 3"], check=False)
    assert (followed.stdout, followed.returncode) == (b"a\n", 3)


def test_a_port_leads_to_a_local_process():
    sent, received = Random(7).randbytes(2 << 20), b""
    with server(echo) as local:
        pod = run_pod({"forward": f"7=127.0.0.1:{local}"})
        with forwarded(pod, 7) as connection:
            sending = threading.Thread(target=connection.sendall, args=(sent,))
            sending.start()
            while len(received) < len(sent):
                received += connection.recv(1 << 16)
            sending.join()
    assert received == sent


@pytest.mark.parametrize("port", [81, 82])
def test_a_connection_to_a_port_that_leads_nowhere_ends(port):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        unused = listener.getsockname()[1]
    pod = run_pod({"forward": f"81=127.0.0.1:{unused}"})
    with forwarded(pod, port) as connection:
        assert connection.recv(1) == b""


def test_the_end_of_a_process_is_the_end_of_its_connection():
    with server(lambda connection: connection.sendall(b"220 ready\r\n")) as local:
        pod = run_pod({"forward": f"25=127.0.0.1:{local}"})
        with forwarded(pod, 25) as connection:
            received = b""
            while data := connection.recv(1 << 16):
                received += data
    assert received == b"220 ready\r\n"


def test_a_connection_to_a_pod_without_processes_ends():
    pod = run_pod({})
    with forwarded(pod, 80) as connection:
        connection.settimeout(5)
        assert connection.recv(1) == b""
