"""Runs a program that can neither have nor gain a capability: `without_privilege [--read-only] PROGRAM ARGUMENT...`.

With --read-only it also changes no file, opens no TCP connection and signals nobody but its own children, as far as the
kernel has Landlock. joblensd starts HTCondor's own programs so: they run as root, or as HTCondor's user.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from condor_joblens.common import landlock, own_process, privilege

MODULE = "condor_joblens.common.without_privilege"
READ_ONLY = "--read-only"


def command(program: Sequence[str], *, read_only: bool) -> list[str]:
    """The command that runs `program` so, with the environment that it is started with."""
    return own_process.isolated_alike(MODULE, *([READ_ONLY] if read_only else []), *program)


def environment(passed_on: dict[str, str]) -> dict[str, str]:
    """An environment for that: where our modules are, if Python is not told by its installation, and `passed_on`."""
    return {**passed_on, "PYTHONPATH": own_process.ENVIRONMENT["PYTHONPATH"]}


def main(arguments: list[str]) -> int:
    """Becomes that program. Raises OSError."""
    program = [argument for argument in arguments[:1] if argument != READ_ONLY] + arguments[1:]
    privilege.keep_only(())
    privilege.no_new_privileges()
    if program != arguments:
        landlock.allow_only(landlock.CHANGE, {os.devnull: landlock.CHANGE})
    os.environ.pop("PYTHONPATH", None)
    os.execv(program[0], program)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
