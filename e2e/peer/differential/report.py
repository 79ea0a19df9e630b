"""Scores, and differences in groups."""

import json
import re
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import Case
from comparison import View, differences, outcome

KEPT_OF_A_GROUP = 4


@dataclass
class Finding:
    """A case whose responses differ."""

    case: Case
    # The number of the request whose response differs.
    step: int
    differences: list[str]

    @property
    def signature(self) -> str:
        """What findings of one group have in common."""
        place = ".".join("#" if isinstance(step, int) else str(step) for step in self.case.place)
        return f"{self.case.kind} {place} {where(self.differences)}"

    def to_json(self) -> dict:
        """The finding for the file of differences."""
        return {
            "case": self.case.index,
            "operation": self.case.operation,
            "step": self.step,
            "requests": [request.to_json()[:4] for request in self.case.requests[: self.step + 1]],
            "differences": self.differences,
        }


def where(found: list[str]) -> str:
    """The path of the first difference."""
    return re.sub(r"\d+", "9", found[0].split(":")[0])


class Report:
    """The result of comparing many cases; may be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total: Counter[str] = Counter()
        self._same_outcome = 0
        self._equal: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._different_kinds: Counter[str] = Counter()
        self._codes: Counter[tuple[int, int]] = Counter()
        self.findings: list[Finding] = []

    def add(self, case: Case, expected: list[View], actual: list[View]) -> None:
        """Compares the responses of a case."""
        pairs = list(zip(expected, actual, strict=True))
        finding = None
        for step, (one, other) in enumerate(pairs):
            if found := differences(one, other):
                finding = Finding(case, step, found)
                break
        same_outcome = all(outcome(one) == outcome(other) for one, other in pairs)
        with self._lock:
            self._total[case.operation] += 1
            self._kinds[case.kind] += 1
            self._same_outcome += same_outcome
            for one, other in pairs:
                self._codes[one["code"], other["code"]] += 1
            if finding is None:
                self._equal[case.operation] += 1
            else:
                self._different_kinds[case.kind] += 1
                self.findings.append(finding)

    @property
    def outcome_score(self) -> float:
        """The share of cases with the same outcome, in percent."""
        return 100 * self._same_outcome / max(1, self._total.total())

    @property
    def answer_score(self) -> float:
        """The share of cases whose whole responses are equal, in percent."""
        return 100 * self._equal.total() / max(1, self._total.total())

    def groups(self) -> dict[str, list[Finding]]:
        """The findings by what they have in common, the largest group first."""
        found: dict[str, list[Finding]] = defaultdict(list)
        for finding in sorted(self.findings, key=lambda finding: finding.case.index):
            found[finding.signature].append(finding)
        return dict(sorted(found.items(), key=lambda group: -len(group[1])))

    def write(self, path: Path, **parameters: Any) -> None:
        """Writes the groups of differences."""
        groups = [
            {
                "signature": signature,
                "count": len(findings),
                "findings": [finding.to_json() for finding in findings[:KEPT_OF_A_GROUP]],
            }
            for signature, findings in self.groups().items()
        ]
        path.write_text(json.dumps({**parameters, "groups": groups}, indent=1, ensure_ascii=False))

    def print(self) -> None:
        """Prints the scores."""
        for operation, total in sorted(self._total.items()):
            print(f"{operation:13} {self._equal[operation]:6} equal of {total}")
        accepted = sum(n for (one, other), n in self._codes.items() if one >= 300 > other)
        refused = sum(n for (one, other), n in self._codes.items() if one < 300 <= other)
        print(f"accepted here alone: {accepted}, refused here alone: {refused}")
        different = {f"{one}|{other}": n for (one, other), n in self._codes.most_common() if one != other}
        print(f"codes that differ: {different}")
        kinds = (f"{kind} {n}/{self._kinds[kind]}" for kind, n in self._different_kinds.most_common(25))
        print(f"kinds by differences: {', '.join(kinds)}")
        total = self._total.total()
        print(f"outcome (code, reason, fields, object): {self._same_outcome} of {total} = {self.outcome_score:.2f}%")
        print(f"whole answer: {self._equal.total()} of {total} = {self.answer_score:.2f}%")
