"""The policies that are in force: which are set aside because they fail, and what is said of that in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from condor_joblens.policy.file_failures import ENOUGH, Faults
from condor_joblens.policy.policy_answers import RuleFailure

Policies = Sequence[tuple[str, str]]
"""Their names and texts, in the order in which they are asked."""


class ActivePolicies:
    """Judges files by what they did. Whoever is told True starts another child, without the file."""

    def __init__(self, policies: Policies, log: Callable[[str], None]) -> None:
        self._log = log
        self.aside: dict[str, str] = {}
        """Files that failed too often -> what they did last."""
        self.load(policies)

    def load(self, policies: Policies) -> None:
        """Other ones, of which nothing is known yet."""
        self._all = list(policies)
        self._faults = Faults(name for name, _ in policies)
        self._said: set[str] = set()
        self.aside.clear()

    @property
    def policies(self) -> list[tuple[str, str]]:
        """Those that are not set aside."""
        return [(name, text) for name, text in self._all if name not in self.aside]

    def complain(self, line: str) -> None:
        """Log a line once, however many children in a row give cause for it."""
        if line not in self._said:
            self._said.add(line)
            self._log(line)

    def decided(self, key: str, owner: str, errors: Sequence[RuleFailure]) -> bool:
        """One job was decided, with these errors."""
        failed = {error.file: str(error) for error in errors}
        self._faults.worked(name for name, _ in self._all if name not in failed)
        return self._any_failed([(file, key, owner, what) for file, what in failed.items()])

    def decided_many(self, owners: Mapping[str, str], failed: Mapping[str, Sequence[str]]) -> bool:
        """A round over these jobs (key -> owner) is over; failed: file -> the jobs on which it did.

        A file that failed on some of many jobs worked on the others; what failed on all failed in a row.
        """
        on_all = [name for name, _ in self._all if owners and len(failed.get(name, ())) >= len(owners)]
        if owners:
            self._faults.worked(name for name, _ in self._all if name not in on_all)
        what = "it failed on every job of a round"
        return self._any_failed([(name, key, owners.get(key, ""), what) for name in on_all for key in failed[name]])

    def killed(self, doing: str, key: str, owner: str, what: str) -> bool:
        """The child died on this job of what it was `doing`, as it said before."""
        files = [name for name, _ in self._all if f"{doing}:".startswith(f"policy {name}:")]
        return self._any_failed([(name, key, owner, f"{doing} {what}") for name in files])

    def _any_failed(self, failures: Iterable[tuple[str, str, str, str]]) -> bool:
        """Counts (file, job, its owner, what it did). Whether one of them was once too often."""
        too_often = False
        for file, key, owner, what in failures:
            if file not in self.aside and self._faults.failed(file, key, owner):
                self.aside[file] = what
                self._log(
                    f"policy {file} failed {ENOUGH} times in a row and is set aside until condor_reconfig: {what}"
                )
                too_often = True
            elif self._faults.fails_for_one(file) and file not in self._said:
                self._said.add(file)
                self._log(f"policy {file} fails on all jobs of one user, and stays in force until it does for another")
        return too_often
