"""Asks a schedd whose a token of HTCondor is: a program of its own, for one question.

In a process that has asked before, HTCondor takes a session that it has kept, or another way to say who *we* are. Then
a forged token comes back as our own user. So each question has a process, which knows tokens alone, and of them the one
that it is asked about.

It runs by the Python that has HTCondor's bindings, and so imports nothing of ours. Standard input and output are one
object of JSON each.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

NOTHING = "/nonexistent"
TOKENS_ALONE = {
    **{f"_CONDOR_SEC_{level}_AUTHENTICATION_METHODS": "TOKEN" for level in ("DEFAULT", "CLIENT", "READ", "WRITE")},
    **{f"_CONDOR_SEC_{level}_AUTHENTICATION": "REQUIRED" for level in ("DEFAULT", "CLIENT", "READ")},
    "_CONDOR_SEC_TOKEN_DIRECTORY": NOTHING,
    "_CONDOR_SEC_TOKEN_SYSTEM_DIRECTORY": NOTHING,
    "_CONDOR_SEC_PASSWORD_DIRECTORY": NOTHING,
    "_CONDOR_SEC_PASSWORD_FILE": NOTHING,
    "_CONDOR_SEC_TOKEN_POOL_SIGNING_KEY_FILE": NOTHING,
}
"""No key and no other token of ours, whoever we are."""

BY_TOKEN = ("IDTOKENS", "IDTOKEN", "TOKEN")
"""What HTCondor calls the way by which somebody was known."""


def main() -> int:
    """Returns the exit code."""
    asked: dict[str, Any] = json.load(sys.stdin)
    if "token" in asked:
        for name in [name for name in os.environ if name.startswith("_CONDOR_") or name == "BEARER_TOKEN"]:
            del os.environ[name]
        os.environ.update(TOKENS_ALONE)
    try:
        import htcondor2
    except ImportError as error:
        return _say({"gone": f"this Python has no htcondor2 ({error})"})
    if not hasattr(htcondor2, "ping"):  # as in 23.9
        return _say({"gone": "this Python's htcondor2 is too old to ask: install htcondor 25 from PyPI"})
    try:
        return _say(_whose(htcondor2, asked) if "token" in asked else _where(htcondor2, asked))
    except Exception as error:  # whatever the bindings raise is their answer
        return _say({"refused" if "token" in asked else "gone": str(error) or type(error).__name__})


def _where(htcondor2: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """The schedd's address: this machine's own, or as a collector has it."""
    if not asked["schedd"]:
        with open(htcondor2.param["SCHEDD_ADDRESS_FILE"], encoding="ascii") as file:
            return {"address": file.readline().strip()}
    collector = htcondor2.Collector(asked["pool"]) if asked["pool"] else htcondor2.Collector()
    return {"address": collector.locate(htcondor2.DaemonType.Schedd, asked["schedd"])["MyAddress"]}


def _whose(htcondor2: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """NAME@DOMAIN, as the schedd has authenticated it."""
    ad = htcondor2.ping(asked["address"], "READ", htcondor2.SecurityContext(asked["token"]))
    if ad.get("AuthMethods") not in BY_TOKEN:
        return {"refused": f"it was asked by {ad.get('AuthMethods')}, and not by the token"}
    return {"who": ad.get("MyRemoteUserName")}


def _say(found: dict[str, Any]) -> int:
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
