"""HTTP: requests, and the servers that respond to them."""

import copy
import http.client
import json
import ssl
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import Any

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

# A string with this prefix in a body stands for a value of the live object: what each server has chosen by itself.
LIVE = "$live:"

ATTEMPTS = 5
DEADLINE_SECONDS = 30


@dataclass
class Request:
    """A request that can be sent to any server."""

    method: str
    path: str
    body: Any = None
    content_type: str = JSON
    # The path of the object that values with the prefix `LIVE` are read from.
    live: str | None = None
    # Repeat the request until the response has this status code.
    until: int | None = None

    def to_json(self) -> list:
        """The request as an item of a sample."""
        return [self.method, self.path, self.body, self.content_type, self.live, self.until]


@dataclass
class Response:
    """A response: the status code, the decoded body, and the warnings in its headers."""

    code: int
    body: Any
    warnings: list[str] = field(default_factory=list)


class Server:
    """A server, with one connection for each thread."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self._address = urllib.parse.urlsplit(url)
        self._token = token
        self._tls = ssl.create_default_context()
        # Servers of tests have certificates of their own.
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE
        self._local = threading.local()
        self._live: dict[str, Any] = {}

    def send(self, request: Request) -> Response:
        """Sends a request, with the values of this server's live object."""
        body = request.body
        if request.live is not None:
            body = localize(body, self.live(request.live))
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            response = self.call(request.method, request.path, body, request.content_type)
            if request.until in (None, response.code):
                return response
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.url}: {request.method} {request.path}: {response}")
            time.sleep(0.1)

    def get(self, path: str) -> Any:
        """Reads an object or a list; None if there is none."""
        response = self.call("GET", path)
        return response.body if response.code == 200 else None

    def live(self, path: str) -> Any:
        """An object that rests. It is read once."""
        if path not in self._live:
            self._live[path] = self.get(path)
        return copy.deepcopy(self._live[path])

    def call(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Response:
        """Sends one request as it is."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": JSON}
        data = None
        if body is not None:
            # As most clients do, without white space.
            data = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Type"] = content_type
        for attempt in range(ATTEMPTS):
            connection = self._connection()
            try:
                connection.request(method, path, body=data, headers=headers)
                response = connection.getresponse()
                text = response.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._local.connection = None
                if attempt == ATTEMPTS - 1:
                    if isinstance(error, http.client.RemoteDisconnected):
                        # kube-apiserver panics at some requests, and closes the connection.
                        return Response(0, "closed without a response", [])
                    raise ConnectionError(f"{self.url}: {method} {path}: {error}") from error
                continue
            if response.status == 429 and attempt < ATTEMPTS - 1:
                time.sleep(0.3)
                continue
            warnings = [value for name, value in response.getheaders() if name.lower() == "warning"]
            return Response(response.status, decoded(text), sorted(warnings))
        raise AssertionError("unreachable")

    def _connection(self) -> http.client.HTTPSConnection:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(
                self._address.hostname, self._address.port, context=self._tls, timeout=60
            )
            self._local.connection = connection
        return connection


def decoded(text: bytes) -> Any:
    """A body as JSON, or as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")


def localize(body: Any, live: Any) -> Any:
    """The body with the values of a live object; a member whose value is absent there is left out."""
    if isinstance(body, dict):
        members = ((name, localize(value, live)) for name, value in body.items())
        return {name: value for name, value in members if value is not ABSENT}
    if isinstance(body, list):
        return [value for value in (localize(item, live) for item in body) if value is not ABSENT]
    if isinstance(body, str) and body.startswith(LIVE):
        return at_pointer(live, body.removeprefix(LIVE))
    return body


ABSENT = object()


def at_pointer(value: Any, pointer: str) -> Any:
    """The value at a JSON pointer, or `ABSENT`."""
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and token.isdigit() and int(token) < len(value):
            value = value[int(token)]
        else:
            return ABSENT
    return value


def pointer_of(path: list) -> str:
    """A path of names and indexes as a JSON pointer."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
