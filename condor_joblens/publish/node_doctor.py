"""Has `joblens doctor` look at the node now and then, as HTCondor's own user, for the node's ad."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import Any

from condor_joblens.publish.node_ad import Health

COMMAND = (sys.executable, "-I", "-m", "condor_joblens.cli.main", "doctor", "--for-pool", "--json")

FIRST = 10.0
"""Seconds until a look at a node that begins or has changed: its daemons have that time to get ready."""

EVERY = 3600.0
"""Seconds between two looks: each takes a second of CPU, at the lowest priority."""

AGAIN = 300.0
"""The same after one that found a failure."""

PATIENCE = 300.0
"""Seconds after which a look that does not end is given up."""

MAX_BYTES = 1 << 18

_WORST_FIRST = ("FAIL", "warn", "ok")


class NodeDoctor:
    """One look at a time. Knows no clock."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self.health = Health()
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._said, self._began, self._due = b"", 0.0, 0.0
        self._has_changed = True  # since the last look began

    def soon(self) -> None:
        """The node has changed: it is looked at again."""
        self._has_changed = True

    def poll(self, now: float) -> None:
        """Begins what is due at `now` (seconds of any clock), and takes what has come."""
        if self._process is None:
            if self._has_changed:
                self._has_changed, self._due = False, now + FIRST
            if now >= self._due:
                self._begin(now)
            return
        more = self._read()
        if more is None and len(self._said) <= MAX_BYTES and now < self._began + PATIENCE:
            return
        if more != b"" or self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process, self.health = None, worst(self._said) if more == b"" else NO_ANSWER
        if self.health.state == "FAIL":
            self._due = now + AGAIN

    def stop(self) -> None:
        """Ends a look that goes on."""
        if self._process is not None:
            self._process.kill()

    def _begin(self, now: float) -> None:
        self._due, self._began, self._said = now + EVERY, now, b""
        try:
            self._process = subprocess.Popen(
                ["nice", "-n", "19", *self._command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            self.health = Health("warn", f"joblens doctor can't be run: {error.strerror}")
            return
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def _read(self) -> bytes | None:
        """b"" at the end of what it says, None while more may come."""
        assert self._process is not None and self._process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            while len(self._said) <= MAX_BYTES:
                part = os.read(self._process.stdout.fileno(), 1 << 16)
                if not part:
                    return b""
                self._said += part
        return None


NO_ANSWER = Health("warn", "joblens doctor does not end here: run it by hand")


def worst(said: bytes) -> Health:
    """The worst of the findings that `doctor --json` has printed."""
    try:
        found: Any = json.loads(said)
        findings = [(str(each["State"]), f"{each['Check']}: {each['Finding']}") for each in found]
        state, says = min(findings, key=lambda finding: _WORST_FIRST.index(finding[0]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return Health("warn", "joblens doctor fails here: run it by hand")
    return Health(state, "" if state == "ok" else says)
