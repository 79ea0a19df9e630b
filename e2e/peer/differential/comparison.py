"""Responses as they are compared: without what a server invents."""

import json
import re
from typing import Any

from servers import Response

# Members whose value each server invents.
INVENTED = {
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "healthCheckNodePort",
    "time",
    "token",
}
NOT_INVENTED: list[Any] = [None, "", "None", ["None"]]
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"20(2[5-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
# Go names a scheme after the file that made it, whose path depends on how the server was built.
SCHEME = re.compile(r'(in scheme \\*")[^"\\]*')
TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}")
# The same members in objects that messages print, as JSON or as Go prints maps.
PRINTED = re.compile(
    r'(\\*"(?:resourceVersion|clusterIP|nodePort|healthCheckNodePort)\\*":)(\\*"[^"\\]*\\*"|\d+)'
    r'|(\\*"clusterIPs\\*":)(\[[^\]]*\])'
    r"|\b((?:resourceVersion|clusterIP|nodePort|healthCheckNodePort):)([\w.:]+)"
    r"|\b(clusterIPs:)(\[[^\]]*\])"
)

MAX_PATHS = 5
MAX_PRINTED = 400
# What is shown of equal text before the first difference.
MAX_CONTEXT = 60

View = dict[str, Any]


def view(response: Response) -> View:
    """What is compared of a response."""
    body = response.body
    if not isinstance(body, dict) or body.get("kind") != "Status" or "status" not in body:
        return {"code": response.code, "object": without_suffix(normal(body)), "warnings": normal(response.warnings)}
    details = body.get("details") or {}
    causes = [[cause.get(part, "") for part in ("reason", "field", "message")] for cause in details.get("causes") or []]
    return {
        "code": response.code,
        "reason": body.get("reason"),
        # With several causes the message is made of them, in an order that is not fixed.
        "message": normal(body.get("message", "")) if len(causes) < 2 else "",
        "causes": sorted(normal(causes)),
        "details": {name: normal(value) for name, value in details.items() if name not in ("causes", "uid")},
        "warnings": normal(response.warnings),
    }


def normal(value: Any) -> Any:
    """A value without what a server invents."""
    if isinstance(value, dict):
        members = {
            name: "*" if name in INVENTED and member not in NOT_INVENTED else normal(member)
            for name, member in value.items()
        }
        if isinstance(members.get("managedFields"), list):
            # Servers order them by whole seconds.
            members["managedFields"].sort(key=lambda entry: json.dumps(entry, sort_keys=True))
        return members
    if isinstance(value, list):
        return [normal(item) for item in value]
    if isinstance(value, str):
        value = UID.sub("UID", TIME.sub("TIME", value))
        value = SCHEME.sub(r"\1*", TOKEN_VOLUME.sub("kube-api-access-R", value))
        return PRINTED.sub(lambda match: next(group for group in match.groups() if group) + "*", value)
    return value


def without_suffix(body: Any) -> Any:
    """An object without the random end of a generated name."""
    metadata = body.get("metadata") if isinstance(body, dict) else None
    if isinstance(metadata, dict) and metadata.get("generateName"):
        prefix, name = metadata["generateName"], metadata.get("name", "")
        if name.startswith(prefix[:58]):
            metadata["name"] = f"{prefix}*"
    return body


def outcome(compared: View) -> Any:
    """What a program notices: code, reason, which fields are wrong and how, and the object but for its managed fields."""
    if "object" not in compared:
        return compared["code"], compared["reason"], sorted(cause[:2] for cause in compared["causes"])
    body = json.loads(json.dumps(compared["object"]))
    if isinstance(body, dict) and isinstance(body.get("metadata"), dict):
        body["metadata"].pop("managedFields", None)
    return compared["code"], body


def differences(expected: Any, actual: Any, path: str = "") -> list[str]:
    """The first paths at which two values differ, with both values."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        found: list[str] = []
        for name in sorted(expected.keys() | actual.keys()):
            here = f"{path}.{name}"
            if name not in expected:
                found.append(f"{here}: absent | {both(None, actual[name])[1]}")
            elif name not in actual:
                found.append(f"{here}: {both(expected[name], None)[0]} | absent")
            else:
                found += differences(expected[name], actual[name], here)
            if len(found) >= MAX_PATHS:
                break
        return found
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        found = []
        for index, (one, other) in enumerate(zip(expected, actual)):
            found += differences(one, other, f"{path}[{index}]")
            if len(found) >= MAX_PATHS:
                break
        return found
    if expected == actual and isinstance(expected, bool) == isinstance(actual, bool):
        return []
    return [f"{path}: {' | '.join(both(expected, actual))}"]


def both(expected: Any, actual: Any) -> list[str]:
    """Two values as JSON, from shortly before the first difference on."""
    texts = [json.dumps(value, ensure_ascii=False) for value in (expected, actual)]
    equal = next((at for at, pair in enumerate(zip(*texts)) if pair[0] != pair[1]), min(map(len, texts)))
    start = max(0, equal - MAX_CONTEXT)
    return [("…" if start else "") + text[start : start + MAX_PRINTED] for text in texts]
