"""Compares an API server with a real kube-apiserver by random requests.

    differential compare --peer URL --server URL [--seed N] [--count N]     both get the same requests
    differential record  --peer URL --out FILE [--seed N] [--count N]       keeps requests with the peer's responses
    differential replay  --server URL FILE                                  sends kept requests

A case starts from an object that the peer accepts and changes one place of it, chosen by the schema that the peer publishes, to a
value that is on a boundary, of a wrong type, missing, repeated or unknown. It is created, put, patched in four manners, applied,
or written through a subresource, with dryRun=All; conversations store what several managers write in turn. Custom kinds with
random schemas and rules, and random admission policies, are part of it. The same seed gives the same cases.

Compared are the code, reason, message, causes, warnings, and on success the object, but for what a server invents (uids, times,
generated names, addresses). Two scores are printed: the outcome (code, reason, which fields are wrong and how, the object without
managed fields), and the whole answer with its texts. The exit status is 1 if one is below its threshold.

Start both servers without controllers, so that objects stay as they were written:

    CONTROLLERS=none PORT=7300 e2e/peer/run start
    coracle serve --ephemeral --listen 127.0.0.1:7400 --controllers '' --nodes 0 --default-storage-class none \\
        --token-auth-file e2e/recordings/tokens.csv --authorization-mode RBAC
"""

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sample
import shrink
from cases import Case, Cases
from catalog import Catalog
from comparison import View, view
from report import Report
from servers import Server
from setup import Builder, Setup

SHRUNK_GROUPS = 60
# Servers write statuses of some new objects a moment later.
REST_SECONDS = 2


def main() -> int:
    """Runs a subcommand."""
    arguments = parser().parse_args()
    return {"compare": compare, "record": record, "replay": replay}[arguments.command](arguments)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        prog="differential", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = result.add_subparsers(dest="command", required=True)
    compared, recorded, replayed = (commands.add_parser(name) for name in ("compare", "record", "replay"))
    for command in (compared, recorded):
        command.add_argument("--peer", required=True, help="URL of the real kube-apiserver")
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--count", type=int, default=4000, help="number of cases")
        command.add_argument("--kinds", help="only these kinds, separated by commas")
        command.add_argument("--operations", help="only these: " + ", ".join(Cases.WEIGHTS))
        command.add_argument("--cases", help="only cases of these numbers, separated by commas")
    for command in (compared, replayed):
        command.add_argument("--server", required=True, help="URL of the server that is compared with it")
        command.add_argument("--outcome", type=float, default=99.5, help="least score of outcomes, in percent")
        command.add_argument("--answer", type=float, default=97.0, help="least score of whole answers, in percent")
        command.add_argument("--differences", type=Path, help="file for the differences, in groups")
    compared.add_argument("--no-shrink", action="store_true", help="keep findings as they are")
    recorded.add_argument("--out", type=Path, required=True, help="file of the sample")
    replayed.add_argument("sample", type=Path)
    for command in (compared, recorded, replayed):
        command.add_argument("--token", default="admintoken")
        command.add_argument("--jobs", type=int, default=4)
    return result


def compare(arguments: argparse.Namespace) -> int:
    """Sends the same requests to both servers."""
    peer = Server(arguments.peer, arguments.token)
    server = Server(arguments.server, arguments.token)
    setup, cases = prepare(arguments, peer, server)
    time.sleep(REST_SECONDS)
    report = Report()
    for request, expected, actual in setup.refused_requests:
        case = Case(-1, request.body.get("kind", ""), "setup", [request])
        report.add(case, [view(expected)], [view(actual)])

    def play(index: int) -> None:
        if (case := cases.case(index)) is not None:
            report.add(case, responses(case, peer), responses(case, server))

    in_threads(arguments.jobs, play, indexes(arguments))
    if not arguments.no_shrink:
        firsts = [group[0] for group in list(report.groups().values())[:SHRUNK_GROUPS] if group[0].case.index >= 0]
        by_case = {finding.case.index: shrink.shrink(finding, peer, server) for finding in firsts}
        report.findings = [by_case.get(finding.case.index, finding) for finding in report.findings]
    return conclude(arguments, report, seed=arguments.seed, count=arguments.count)


def record(arguments: argparse.Namespace) -> int:
    """Keeps the peer's responses."""
    peer = Server(arguments.peer, arguments.token)
    setup, cases = prepare(arguments, peer, None)
    time.sleep(REST_SECONDS)
    kept: list[tuple[Case, list[View]]] = []

    def play(index: int) -> None:
        if (case := cases.case(index)) is not None:
            kept.append((case, responses(case, peer)))

    in_threads(arguments.jobs, play, indexes(arguments))
    sample.write(arguments.out, setup, sorted(kept, key=lambda item: item[0].index))
    print(f"{len(kept)} cases, {arguments.out.stat().st_size} bytes")
    return 0


def replay(arguments: argparse.Namespace) -> int:
    """Sends kept requests."""
    server = Server(arguments.server, arguments.token)
    kept = sample.read(arguments.sample)
    kept.setup.apply(server)
    report = Report()

    def play(item: tuple[Case, list[View]]) -> None:
        case, expected = item
        report.add(case, expected, responses(case, server))

    in_threads(arguments.jobs, play, kept.cases)
    return conclude(arguments, report, sample=str(arguments.sample))


def prepare(arguments: argparse.Namespace, peer: Server, server: Server | None) -> tuple[Setup, Cases]:
    """The state on the servers, and the cases that start from it."""
    chosen = split(arguments.kinds)
    catalog = Catalog(peer)
    builder = Builder(peer, server, catalog, arguments.seed)
    setup = builder.build(chosen)
    kinds = {key[1] for key, bodies in setup.accepted.items() if bodies}
    missing = {resource.kind for resource in catalog.resources.values()} - kinds
    print(
        f"{len(kinds)} kinds with {sum(map(len, setup.accepted.values()))} base objects, {len(setup.stored)} stored; "
        f"kinds without: {', '.join(sorted(missing))}",
        flush=True,
    )
    return setup, Cases(peer, catalog, setup, arguments.seed, split(arguments.operations))


def split(text: str | None) -> set[str] | None:
    """A list on the command line."""
    return set(text.split(",")) if text else None


def indexes(arguments: argparse.Namespace) -> Iterator[int] | range:
    """The numbers of the cases."""
    if arguments.cases:
        return map(int, arguments.cases.split(","))
    return range(arguments.count)


def responses(case: Case, server: Server) -> list[View]:
    """What is compared of a server's responses."""
    return [view(server.send(request)) for request in case.requests]


def in_threads(jobs: int, work, items) -> None:
    """Does the work for all items; the first failure ends it."""
    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(work, item) for item in items]:
            done.result()


def conclude(arguments: argparse.Namespace, report: Report, **parameters: object) -> int:
    """Prints the scores; 1 if one is too low."""
    if arguments.differences:
        report.write(arguments.differences, **parameters)
    report.print()
    return int(report.outcome_score < arguments.outcome or report.answer_score < arguments.answer)


if __name__ == "__main__":
    sys.exit(main())
