"""The fixtures, without a Kubernetes client."""

import base64
import contextlib
import http.client
import json
import os
import re
import ssl
import stat
import sys
from datetime import datetime, timedelta
import urllib.parse

import pytest

import pytest_coracle

pytest_plugins = ["pytester"]


def test_a_kubeconfig_is_there_while_the_control_plane_runs():
    with pytest_coracle.start(["--nodes=0"]) as control_plane:
        with open(control_plane.kubeconfig) as file:
            assert "server: https://127.0.0.1:" in file.read()
    assert not os.path.exists(control_plane.kubeconfig)


def test_flags_may_stand_alone():
    with pytest_coracle.start("--nodes=0", "--default-storage-class=none") as control_plane:
        assert os.path.exists(control_plane.kubeconfig)


def test_tests_share_the_one_of_the_session_only(coracle, coracle_session):
    assert coracle.kubeconfig != coracle_session.kubeconfig


@pytest.mark.parametrize("flag", ["--no-such-flag", "--listen=192.0.2.1:1"])
def test_a_failed_start_reports_the_programs_error(flag):
    with pytest.raises(pytest_coracle.StartError, match="coracle: "):
        with pytest_coracle.start([flag]):
            pass


def test_without_a_program_the_error_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.delenv("CORACLE_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest_coracle.StartError, match="CORACLE_BIN"):
        with pytest_coracle.start():
            pass


def test_a_wrong_program_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CORACLE_BIN", str(tmp_path / "missing"))
    with pytest.raises(pytest_coracle.StartError, match="CORACLE_BIN is .*missing"):
        with pytest_coracle.start():
            pass


def create_pod(control_plane, name, directory):
    """Creates a pod in the namespace ``default``, with the standard library alone."""
    with open(control_plane.kubeconfig) as file:
        kubeconfig = file.read()

    def member(key):
        return re.search(rf'{key}: "?([^"\s]+)', kubeconfig)[1]

    def pem(key):
        return base64.b64decode(member(key)).decode()

    pair = directory / "pair.pem"
    pair.write_text(pem("client-certificate-data") + pem("client-key-data"))
    context = ssl.create_default_context(cadata=pem("certificate-authority-data"))
    context.load_cert_chain(pair)
    server = urllib.parse.urlsplit(member("server"))
    connection = http.client.HTTPSConnection(server.netloc, context=context, timeout=30)
    pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
    body, headers = json.dumps(pod), {"Content-Type": "application/json"}
    connection.request("POST", "/api/v1/namespaces/default/pods", body, headers)
    assert connection.getresponse().status == 201
    connection.close()


def test_pods_that_are_not_ready_are_problems(tmp_path):
    # Nothing schedules a pod there.
    with pytest_coracle.start("--nodes=0") as control_plane:
        assert control_plane.problems() == ""
        create_pod(control_plane, "lonely", tmp_path)
        problems = control_plane.problems()
        assert problems.startswith("objects that are not ready (1):\n  pod/default/lonely: Pending"), problems
    with pytest.raises(pytest_coracle.ProblemsError, match="coracle: "):
        control_plane.problems()


FAILING = """
import pytest
import pytest_coracle
from test_fixtures import create_pod

@pytest.fixture(scope="session")
def coracle_flags():
    return ["--nodes=0"]

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with pytest_coracle.start("--nodes=0") as control_plane:
        create_pod(control_plane, "of-a-shared-one", tmp_path_factory.mktemp("shared"))
        yield "a client"

def test_passes(coracle, tmp_path):
    create_pod(coracle, "of-a-test-that-passes", tmp_path)

def test_fails(coracle, tmp_path):
    create_pod(coracle, "of-a-fixture", tmp_path)
    assert False

def test_fails_with_another_fixture(shared):
    assert False

def test_fails_in_a_block(tmp_path):
    with pytest_coracle.start("--nodes=0") as control_plane:
        create_pod(control_plane, "of-a-block", tmp_path)
        pytest.fail("in a block")
"""


def test_the_report_of_a_failure_has_the_problems(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
    pytester.makepyfile(test_failing=FAILING)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=60)
    result.assert_outcomes(passed=1, failed=3)
    output = result.stdout.str()
    test, fixture, block = re.split("_ test_fails.* _", output)[1:]
    assert "- coracle problems -" in test and "pod/default/of-a-fixture: Pending" in test, test
    assert "of-a-shared-one" not in test, test
    assert "pod/default/of-a-shared-one: Pending" in fixture, fixture
    if sys.version_info >= (3, 11):
        assert "pod/default/of-a-block: Pending" in block, block
    assert "of-a-test-that-passes" not in output


def test_a_failed_stop_has_the_log_unless_the_test_failed_first(monkeypatch, tmp_path):
    program = tmp_path / "failing"
    real = pytest_coracle._program()
    program.write_text(f'#!/bin/sh\n"{real}" "$@"\necho "the disk is on fire" >&2\nexit 3\n')
    program.chmod(0o700)
    monkeypatch.setenv("CORACLE_BIN", str(program))
    with pytest.raises(pytest_coracle.StopError, match="exit code 3: (?s:.*)the disk is on fire"):
        with pytest_coracle.start("--nodes=0"):
            pass
    with pytest.raises(ZeroDivisionError):
        with pytest_coracle.start("--nodes=0"):
            1 / 0


def test_settle_waits_for_clients():
    with pytest_coracle.start("--nodes=0") as control_plane:
        control_plane.settle(quiet_for=timedelta(milliseconds=1), user_agents=["kube-controller-manager/*"])
        with pytest.raises(pytest_coracle.SettleError, match="no-such-operator"):
            control_plane.settle(timeout=timedelta(milliseconds=200), user_agents=["no-such-operator/*"])


def test_the_clock_is_moved_on():
    with pytest_coracle.start("--clock=manual") as control_plane:
        control_plane.settle()
        clock = control_plane.clock
        began = clock.now()
        assert clock.advance("24h")[:10] > began[:10]
        later = clock.advance(timedelta(minutes=1.5))
        assert clock.advance(timedelta(microseconds=1)) > later
        assert clock.next(2) > later
        next_year = datetime.now().replace(microsecond=0) + timedelta(days=365)
        assert datetime.fromisoformat(clock.set(next_year).replace("Z", "+00:00")) == next_year.astimezone()
        for refused in [lambda: clock.set(began), lambda: clock.advance("-1s")]:
            with pytest.raises(pytest_coracle.ClockError, match="does not go back|negative"):
                refused()
        clock.resume()
        with pytest.raises(pytest_coracle.ClockError, match="--clock=manual"):
            clock.advance("1s")


def names(control_plane):
    """The names of the pods that are not ready, of a control plane that has no nodes."""
    return re.findall("pod/default/(.*): Pending", control_plane.problems())


def forks(control_plane):
    """The forks that the control plane knows."""
    return pytest_coracle._call(control_plane.kubeconfig, "GET", "/coracle/v1alpha1/forks")["forks"]


def test_a_fork_goes_its_own_way_and_ends_with_its_block(tmp_path):
    with pytest_coracle.start("--nodes=0") as control_plane:
        create_pod(control_plane, "before", tmp_path)
        with control_plane.fork() as fork:
            assert stat.S_IMODE(os.stat(fork.kubeconfig).st_mode) == 0o600
            create_pod(fork, "of-the-fork", tmp_path)
            create_pod(control_plane, "after", tmp_path)
            fork.settle()
            assert names(fork) == ["before", "of-the-fork"]
            assert names(control_plane) == ["after", "before"]
            assert len(forks(control_plane)) == 1
        assert forks(control_plane) == []
        # No file is left, of another name either.
        assert os.listdir(os.path.dirname(control_plane.kubeconfig)) == [os.path.basename(control_plane.kubeconfig)]


def test_a_fork_of_a_fork_goes_on(tmp_path):
    with pytest_coracle.start("--nodes=0") as control_plane, contextlib.ExitStack() as outlasting:
        with control_plane.fork() as first:
            create_pod(first, "of-the-first", tmp_path)
            second = outlasting.enter_context(first.fork())
        assert len(forks(control_plane)) == 1
        assert names(second) == ["of-the-first"]
        assert names(control_plane) == []


def test_a_fork_has_a_clock_of_its_own():
    with pytest_coracle.start("--clock=manual", "--nodes=0") as control_plane:
        control_plane.settle()
        began = control_plane.clock.advance("1h")
        with control_plane.fork() as fork:
            assert fork.clock.now() == began
            assert fork.clock.advance("24h") > began
            assert control_plane.clock.now() == began


def test_a_fork_has_options_of_its_own():
    with pytest_coracle.start("--nodes=0") as control_plane:
        urls = {"default/hook": "https://127.0.0.1:9443"}
        with control_plane.fork(clock="manual", webhook_service_urls=urls) as fork:
            began = fork.clock.now()
            assert fork.clock.advance("1h") > began
        with pytest.raises(pytest_coracle.ForkError, match="webhookServiceURLs"):
            with control_plane.fork(webhook_service_urls={"hook": "https://127.0.0.1:9443"}):
                pass


def test_a_fork_ends_if_its_block_fails():
    with pytest_coracle.start("--nodes=0") as control_plane:
        with pytest.raises(ZeroDivisionError):
            with control_plane.fork() as fork:
                raise ZeroDivisionError
        assert forks(control_plane) == []
        assert not os.path.exists(fork.kubeconfig)


def test_a_fork_that_is_refused_reports_the_servers_error():
    with pytest_coracle.start("--nodes=0", "--max-forks=0") as control_plane:
        with pytest.raises(pytest_coracle.ForkError, match=r"coracle: POST /coracle/.*: 429 .*--max-forks"):
            with control_plane.fork():
                pass
    with pytest.raises(pytest_coracle.ForkError, match="coracle: POST /coracle/.*: .*No such file"):
        with control_plane.fork():
            pass


TEMPLATE = """
import pytest
from test_fixtures import create_pod

@pytest.fixture(scope="session")
def coracle_flags():
    return ["--nodes=0"]

@pytest.fixture(scope="session")
def coracle_template(coracle_template, tmp_path_factory):
    create_pod(coracle_template, "of-the-template", tmp_path_factory.mktemp("template"))
    return coracle_template
"""

FORKING = """
import pytest
from test_fixtures import create_pod, names

@pytest.mark.parametrize("turn", ["a", "b"])
def test_passes(coracle_fork, tmp_path, turn):
    create_pod(coracle_fork, "of-" + turn, tmp_path)
    assert names(coracle_fork) == ["of-" + turn, "of-the-template"]

def test_fails(coracle_fork, tmp_path):
    create_pod(coracle_fork, "of-a-failure", tmp_path)
    assert False

def test_fails_in_a_block(coracle_template, tmp_path):
    assert names(coracle_template) == ["of-the-template"]
    with coracle_template.fork() as fork:
        create_pod(fork, "of-a-block", tmp_path)
        assert False
"""


def test_each_test_has_a_fork_of_the_template(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
    pytester.makeconftest(TEMPLATE)
    pytester.makepyfile(test_forking=FORKING)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=60)
    result.assert_outcomes(passed=2, failed=2)
    fork, block = re.split("_ test_fails.* _", result.stdout.str())[1:]
    assert fork.count("- coracle problems -") == 1, fork
    assert "objects that are not ready (2):" in fork and "pod/default/of-a-failure: Pending" in fork, fork
    if sys.version_info >= (3, 11):
        assert "pod/default/of-a-block: Pending" in block, block


def test_the_template_has_the_flags_by_default(pytester):
    pytester.makepyfile(
        """
import pytest

@pytest.fixture(scope="session")
def coracle_flags():
    return ["--clock=manual"]

def test_passes(coracle_fork):
    assert coracle_fork.clock.advance("1h")
"""
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=60).assert_outcomes(passed=1)
