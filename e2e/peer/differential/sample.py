"""A kept sample: requests with the responses of a real kube-apiserver, as compressed lines of JSON."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import Case
from comparison import View
from servers import Request
from setup import Setup


@dataclass
class Sample:
    """The requests that bring a server into the state, and cases with the recorded responses."""

    setup: Setup
    cases: list[tuple[Case, list[View]]]


def write(path: Path, setup: Setup, cases: list[tuple[Case, list[View]]]) -> None:
    """Writes a sample. The same content gives the same bytes."""
    lines: list[Any] = [[request.to_json() for request in setup.requests]]
    for case, views in cases:
        requests = [request.to_json() for request in case.requests]
        lines.append([case.index, case.kind, case.operation, case.place, requests, views])
    text = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(errors="surrogatepass"), compresslevel=9, mtime=0))


def read(path: Path) -> Sample:
    """Reads a sample."""
    lines = read_lines(path)
    setup = Setup([Request(*request) for request in next(lines)])
    cases = [
        (Case(index, kind, operation, [Request(*request) for request in requests], place), views)
        for index, kind, operation, place, requests, views in lines
    ]
    return Sample(setup, cases)


def read_lines(path: Path) -> Iterator[Any]:
    """The lines of a sample."""
    with gzip.open(path, "rt", encoding="utf-8", errors="surrogatepass") as file:
        for line in file:
            yield json.loads(line)
