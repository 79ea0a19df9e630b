"""Makes the requests of a finding smaller, as long as the responses differ in the same place."""

import copy
from collections.abc import Iterator
from typing import Any

from comparison import differences, view
from report import Finding, where
from servers import Request, Server

MAX_TRIES = 150

Path = tuple[str | int, ...]


def shrink(finding: Finding, reference: Server, subject: Server) -> Finding:
    """A finding with the smallest body that was found; a conversation stays as it is."""
    if len(finding.case.requests) != 1 or finding.case.requests[0].body is None:
        return finding
    tries = 0
    target = where(finding.differences)

    def still_differs(request: Request) -> list[str] | None:
        nonlocal tries
        tries += 1
        found = differences(view(reference.send(request)), view(subject.send(request)))
        return found if found and where(found) == target else None

    best = copy.deepcopy(finding)
    request = best.case.requests[0]
    progress = True
    while progress and tries < MAX_TRIES:
        progress = False
        for path in list(paths(request.body)):
            if tries >= MAX_TRIES:
                break
            smaller = copy.deepcopy(request)
            if not remove(smaller.body, path):
                continue
            if found := still_differs(smaller):
                request = smaller
                best.case.requests[0], best.differences = smaller, found
                progress = True
    return best


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all members and items, outer ones first."""
    if isinstance(value, dict):
        inner: Any = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    else:
        return
    children = list(inner)
    for step, _ in children:
        yield (*path, step)
    for step, child in children:
        yield from paths(child, (*path, step))


def remove(value: Any, path: Path) -> bool:
    """Removes what is at a path; false if it is no longer there, or if the object would have no kind."""
    if path in KEPT:
        return False
    for step in path[:-1]:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return False
    try:
        del value[path[-1]]
    except (KeyError, IndexError, TypeError):
        return False
    return True


KEPT: set[Path] = {("apiVersion",), ("kind",), ("metadata",), ("metadata", "name"), ("metadata", "resourceVersion")}
