"""Log-in by a token of HTCondor (IDTOKENS): a schedd says whose it is.

The file of `--condor`:

[condor]
schedd = ap1.example.org
pool = cm.example.org
python = /usr/bin/python3
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub import condor_check
from condor_joblens.hub.settings_file import read_section

MOST_TOKEN = 8192
"""Characters."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_WHO = re.compile(r"[^@\s,]{1,200}@[^@\s,]{1,200}")
_SECONDS = 20.0
_ADDRESS_SECONDS = 60.0
_MOST_SAID = 64 << 10
_DEFAULTS = {"schedd": "", "pool": "", "python": ""}


class TokenRefused(JobLensError):
    """The schedd does not take it."""


class ScheddGone(JobLensError):
    """It can't be asked now."""


@dataclass(frozen=True)
class CondorSettings:
    """As the file says."""

    schedd: str  # its name; empty: this machine's
    pool: str  # its collector; empty: HTCondor's configuration says which
    python: str  # that has the bindings


def read_settings(path: str) -> CondorSettings:
    """Raises JobLensError with what is wrong, OSError."""
    given = read_section(path, "condor", _DEFAULTS)
    if given["pool"] and not given["schedd"]:
        raise JobLensError(f"{path}: pool says where a schedd is looked for: name the schedd too")
    return CondorSettings(given["schedd"], given["pool"], given["python"] or sys.executable)


class CondorTokens:
    """Any thread may ask. Each question is a process: condor_check.py says why."""

    def __init__(self, settings: CondorSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._address: tuple[float, str] = (float("-inf"), "")

    def whose(self, token: str) -> str:
        """NAME@DOMAIN. Raises TokenRefused, ScheddGone."""
        if len(token) > MOST_TOKEN or not _TOKEN.fullmatch(token):
            raise TokenRefused("this is no token of HTCondor: condor_token_fetch prints one")
        said = self._ask({"address": self._where(), "token": token})
        if "gone" in said:
            raise ScheddGone(str(said["gone"]))
        who = said.get("who")
        if not isinstance(who, str) or not _WHO.fullmatch(who):
            why = printable(str(said.get("refused", "it does not say whose it is")), 200)
            raise TokenRefused(f"the schedd does not take this token: is it over, or not for READ? ({why})")
        if "unmapped" in who.split("@") or who.startswith("unauthenticated@"):
            raise TokenRefused("the schedd does not know whose this token is")
        return who

    def _where(self) -> str:
        """The schedd's address, as of a minute ago at most. Raises ScheddGone."""
        with self._lock:
            when, address = self._address
            if time.monotonic() - when > _ADDRESS_SECONDS:
                said = self._ask({"schedd": self._settings.schedd, "pool": self._settings.pool})
                address = str(said.get("address", ""))
                if not address.startswith("<"):
                    raise ScheddGone(f"the schedd is not found: {printable(str(said.get('gone')), 200)}")
                self._address = time.monotonic(), address
        return address

    def _ask(self, question: dict[str, str]) -> dict[str, Any]:
        """Raises ScheddGone."""
        try:
            done = subprocess.run(
                [self._settings.python, "-I", condor_check.__file__], input=json.dumps(question).encode(),
                capture_output=True, timeout=_SECONDS, check=False,
            )  # fmt: skip
            found = json.loads(done.stdout[:_MOST_SAID] or "{}")
            if done.returncode != 0 or not isinstance(found, dict):
                last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing"])[-1]
                raise ValueError(f"it ends with {done.returncode} and says {printable(last, 200)}")
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise ScheddGone(f"{self._settings.python} can't ask the schedd: {printable(str(error), 200)}") from None
        return found
