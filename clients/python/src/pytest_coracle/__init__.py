"""pytest fixtures that start a Coracle control plane, and stop it with the tests."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import selectors
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import IO

import pytest

__all__ = [
    "Clock",
    "ClockError",
    "ControlPlane",
    "ForkError",
    "ProblemsError",
    "SettleError",
    "StartError",
    "StopError",
    "coracle",
    "coracle_flags",
    "coracle_fork",
    "coracle_session",
    "coracle_template",
    "start",
]

START_TIMEOUT = 30.0
STOP_TIMEOUT = 10.0
# Longer than what `coracle problems` takes at most.
PROBLEMS_TIMEOUT = 10.0
# What `coracle settle` takes beyond its own timeout, which is that of its flag.
SETTLE_MARGIN = 10.0
DEFAULT_SETTLE_TIMEOUT = timedelta(seconds=10)
# A year of a busy control plane is much work.
CLOCK_TIMEOUT = 600.0
FORK_TIMEOUT = 60.0

_FORKS = "/coracle/v1alpha1/forks"

# The command of `coracle run` ends with its standard input, which ends with this process. So no control plane outlives tests
# that are killed.
_COMMAND = ("sh", "-c", 'echo "$KUBECONFIG"; exec cat >/dev/null')


class StartError(RuntimeError):
    """The control plane does not start; the text has its log."""


class StopError(RuntimeError):
    """The control plane has failed when it stopped; the text has its log."""


class SettleError(RuntimeError):
    """The control plane has not settled; the text has what is under way."""


class ClockError(RuntimeError):
    """The clock cannot be moved so."""


class ForkError(RuntimeError):
    """A fork cannot be made, or ended; the text has the reason."""


class ProblemsError(RuntimeError):
    """The problems of a control plane are not known: it does not respond."""


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane. All its data is in memory."""

    #: The path of the administrator's kubeconfig, which exists as long as the control plane runs.
    kubeconfig: str
    _program: str = field(repr=False)
    # The control plane whose process a fork is in, which outlives it; None for that one itself.
    _process: ControlPlane | None = field(default=None, repr=False)

    @contextlib.contextmanager
    def fork(
        self, *, clock: str | None = None, webhook_service_urls: Mapping[str, str] | None = None
    ) -> Iterator[ControlPlane]:
        """Makes a control plane that begins with the objects, the history and the time of this one, and goes its own way.

        Nothing that happens in one is seen in the other. It costs milliseconds, and ends with the block.

        ``clock`` is ``real`` or ``manual``, if it is another one than that of this control plane. ``webhook_service_urls`` are the URLs
        of servers of the test, by NAMESPACE/NAME, that webhooks call in the fork instead of these Services.
        """
        process = self._process or self
        request = {"clock": clock, "webhookServiceURLs": dict(webhook_service_urls or {})}
        answer = _call(self.kubeconfig, "POST", _FORKS, json.dumps(request))
        try:
            # The directory ends with the process, even if the tests are killed.
            with _temporary_file(os.path.dirname(process.kubeconfig)) as file:
                # The credentials and the authority are those of this control plane.
                with open(self.kubeconfig) as own:
                    file.write(_SERVER.sub(lambda line: line[1] + answer["server"], own.read()))
                file.flush()
                with _watched(ControlPlane(file.name, self._program, process)) as fork:
                    yield fork
        finally:
            # Not at this control plane, which may be a fork that has ended.
            _call(process.kubeconfig, "DELETE", f"{_FORKS}/{answer['name']}")

    def problems(self) -> str:
        """The objects that are not ready, have failed or are terminating, and their newest events, a line each; empty if there are none."""
        return self._run(ProblemsError, PROBLEMS_TIMEOUT, "problems")

    def settle(
        self,
        *,
        timeout: timedelta = DEFAULT_SETTLE_TIMEOUT,
        quiet_for: timedelta | None = None,
        user_agents: Sequence[str] = (),
    ) -> None:
        """Waits until nothing is left to happen at this moment of the clock; an error names what is under way after the timeout.

        ``quiet_for`` is the time for which nothing may have been written, 50 ms by default. ``user_agents`` are patterns, with ``*`` for
        any characters: a client of each must have made a request before, such as an operator that is still starting.
        """
        flags = [f"--timeout={_duration(timeout)}"]
        flags += [f"--for={_duration(quiet_for)}"] if quiet_for is not None else []
        flags += [f"--user-agent={pattern}" for pattern in user_agents]
        self._run(SettleError, timeout.total_seconds() + SETTLE_MARGIN, "settle", *flags)

    @property
    def clock(self) -> Clock:
        """The clock, which can be moved on if the control plane was started with ``--clock=manual``."""
        return Clock(self)

    def _run(self, error: type[RuntimeError], timeout: float, *arguments: str) -> str:
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig}
        command = [self._program, *arguments]
        try:
            result = subprocess.run(
                command, capture_output=True, timeout=timeout, text=True, errors="replace", env=environment
            )
        except subprocess.TimeoutExpired as late:
            raise error(f"coracle {' '.join(arguments)} has not ended within {timeout:g} s") from late
        if result.returncode:
            raise error(result.stderr.strip())
        return result.stdout


@dataclass(frozen=True)
class Clock:
    """The clock of a control plane. Its methods return its time."""

    _control_plane: ControlPlane

    def now(self) -> str:
        """The time, as RFC 3339."""
        return self._run("--limit", "0")

    def advance(self, by: str | timedelta) -> str:
        """Moves the clock on, from timer to timer, and waits at each until the control plane has settled. ``by`` is such as ``"24h"``."""
        return self._run("advance", "--", _duration(by) if isinstance(by, timedelta) else by)

    def next(self, count: int = 1) -> str:
        """Moves the clock to the times at which the next timers fire, so many times."""
        return self._run("next", "--", str(count))

    def set(self, to: str | datetime) -> str:
        """Moves the clock to a time that is not earlier than its own. A ``datetime`` without a zone is local time."""
        return self._run("set", to.astimezone().isoformat() if isinstance(to, datetime) else to)

    def resume(self) -> str:
        """Lets the clock run by itself, from its time on."""
        return self._run("resume")

    def _run(self, *arguments: str) -> str:
        return self._control_plane._run(ClockError, CLOCK_TIMEOUT, "clock", *arguments).split(" ", 1)[0].strip()


def _duration(duration: timedelta) -> str:
    """A duration in Go's format."""
    return f"{duration // timedelta(microseconds=1)}us"


# The line of the server in a kubeconfig that coracle writes, which is there once.
_SERVER = re.compile(r'^(\s*server: )"?([^"\s]+)"?$', re.MULTILINE)


def _call(kubeconfig: str, method: str, path: str, body: str | None = None) -> dict:
    """Makes a request of the administrator, and returns the answer."""
    try:
        with open(kubeconfig) as file:
            connection = _connection(file.read())
        with contextlib.closing(connection):
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ForkError(f"coracle: {method} {path}: {error}") from error
    try:
        answer = json.loads(text)
    except ValueError:
        answer = {"message": text}
    if response.status >= 300:
        raise ForkError(f"coracle: {method} {path}: {response.status} {response.reason}: {answer.get('message')}")
    return answer


def _connection(kubeconfig: str) -> http.client.HTTPSConnection:
    """A connection of the administrator, which is made with the first request."""

    def data(key: str) -> str:
        found = re.search(rf'^\s*{key}-data: "?([^"\s]+)"?$', kubeconfig, re.MULTILINE)
        if not found:
            raise ValueError(f"the kubeconfig has no {key}-data")
        return base64.b64decode(found[1]).decode()

    context = ssl.create_default_context(cadata=data("certificate-authority"))
    # It is read from files only.
    with _temporary_file() as pair:
        pair.write(data("client-certificate") + data("client-key"))
        pair.flush()
        context.load_cert_chain(pair.name)
    found = _SERVER.search(kubeconfig)
    if not found:
        raise ValueError("the kubeconfig has no server")
    server = urllib.parse.urlsplit(found[2])
    return http.client.HTTPSConnection(server.hostname, server.port, context=context, timeout=FORK_TIMEOUT)


def _temporary_file(directory: str | None = None) -> contextlib.AbstractContextManager[IO[str]]:
    """A file that this user alone may read, and that is deleted at the end of a block."""
    return tempfile.NamedTemporaryFile("w", prefix="coracle-", dir=directory)


# The control planes that run now.
_running: list[ControlPlane] = []


@contextlib.contextmanager
def _watched(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Reports the problems of a control plane if a test fails in the block."""
    _running.append(control_plane)
    try:
        yield control_plane
    except pytest.xfail.Exception:
        # A kind of failure that is expected.
        raise
    # `pytest.fail` raises no Exception, and neither does `pytest.skip`.
    except (Exception, pytest.fail.Exception) as error:
        # Of Python 3.11. It is stopped when the report of the test is made.
        if hasattr(error, "add_note") and (problems := _problems(control_plane)):
            error.add_note(f"coracle problems:\n{problems}")
        raise
    finally:
        _running.remove(control_plane)


@contextlib.contextmanager
def start(*flags: str | Sequence[str]) -> Iterator[ControlPlane]:
    """Runs a control plane. ``flags`` are those of ``coracle run``: ``start("--nodes=3")``, or a list of them."""
    program = _program()
    flags = [flag for given in flags for flag in ([given] if isinstance(given, str) else given)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [program, "run", *flags, "--", *_COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
        )
        try:
            kubeconfig = _first_line(process)
            if not kubeconfig:
                process.kill()
                process.wait()
                log.seek(0)
                raise StartError(f"{program} does not start: {log.read().decode(errors='replace')}")
            with _watched(ControlPlane(kubeconfig, program)) as control_plane:
                yield control_plane
        except BaseException:
            # This says more than what may follow from it.
            _stop(process)
            raise
        ended = _stop(process)
        if ended not in _STOPPED:
            log.seek(0)
            raise StopError(f"{program}: {ended}: {log.read().decode(errors='replace')}")


# The exit codes of a control plane that has stopped: by the end of its command, or by SIGINT or SIGTERM to all processes.
_STOPPED = ("exit code 0", "exit code 130", "exit code 143")


def _stop(process: subprocess.Popen[bytes]) -> str:
    """Stops a control plane, and returns how it has ended."""
    process.stdin.close()
    try:
        code = process.wait(STOP_TIMEOUT)
        ended = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        ended = f"it has not ended within {STOP_TIMEOUT:g} s"
    process.stdout.close()
    return ended


def _program() -> str:
    """The path of the program."""
    chosen = os.environ.get("CORACLE_BIN")
    program = shutil.which(chosen or "coracle")
    if program:
        return program
    if chosen:
        raise StartError(f"CORACLE_BIN is {chosen!r}, which is not a program")
    raise StartError("set CORACLE_BIN, or install coracle on the path")


def _first_line(process: subprocess.Popen[bytes]) -> str:
    """The first line of the output; nothing if the process ends before it, or takes too long."""
    line = b""
    deadline = time.monotonic() + START_TIMEOUT
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return ""
            read = os.read(process.stdout.fileno(), 4096)
            if not read:
                return ""
            line += read
    return line.decode().rstrip("\n")


@pytest.fixture(scope="session")
def coracle_flags() -> list[str]:
    """The flags of the control planes; override it to change them."""
    return []


@pytest.fixture
def coracle(coracle_flags: list[str]) -> Iterator[ControlPlane]:
    """A control plane for one test."""
    with start(coracle_flags) as control_plane:
        yield control_plane


@pytest.fixture(scope="session")
def coracle_session(coracle_flags: list[str]) -> Iterator[ControlPlane]:
    """A control plane for all tests."""
    with start(coracle_flags) as control_plane:
        yield control_plane


@pytest.fixture(scope="session")
def coracle_template(coracle_flags: list[str]) -> Iterator[ControlPlane]:
    """The control plane that ``coracle_fork`` forks; override it to set it up."""
    with start(coracle_flags) as control_plane:
        yield control_plane


@pytest.fixture
def coracle_fork(coracle_template: ControlPlane) -> Iterator[ControlPlane]:
    """A fork of ``coracle_template`` for one test."""
    with coracle_template.fork() as fork:
        yield fork


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the problems of the control planes of a test to the report of its failure."""
    report = yield
    if report.failed and report.when != "teardown":
        fixtures = dict(getattr(item, "funcargs", {}))
        if "coracle_fork" in fixtures:
            # The fork began with its problems.
            fixtures.pop("coracle_template", None)
        own = [value for value in fixtures.values() if isinstance(value, ControlPlane)]
        # A test without one in its fixtures may use any: fixtures of other projects return clients.
        for control_plane in own or _running:
            if problems := _problems(control_plane):
                report.sections.append(("coracle problems", problems))
    return report


def _problems(control_plane: ControlPlane) -> str:
    """The problems; for a control plane that does not respond the reason."""
    try:
        return control_plane.problems()
    except (ProblemsError, OSError, subprocess.SubprocessError) as error:
        return str(error)
