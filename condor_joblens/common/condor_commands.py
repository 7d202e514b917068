"""HTCondor's own commands, which never keep us waiting for ever."""

from __future__ import annotations

import os
import shutil
import subprocess

from condor_joblens.common.errors import JobLensError, printable

EXPRESSION = "/Expr("
"""How -json of these commands begins what is no literal; it ends with )/."""


def search_path() -> str:
    """Where programs are looked for."""
    return f"{os.environ.get('PATH', '')}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".lstrip(":")


def ask(name: str, *arguments: str, timeout: float = 20) -> str:
    """What a command prints. Raises JobLensError if it is missing, fails or takes over `timeout` s."""
    program = shutil.which(name, path=search_path())
    if program is None:
        raise JobLensError(f"{name} is not in the PATH: is HTCondor installed on this machine?")
    try:
        done = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise JobLensError(f"{name} does not answer within {timeout:g} s") from None
    except OSError as error:
        raise JobLensError(f"{name} can't be run: {error.strerror}") from None
    if done.returncode != 0:
        raise JobLensError(f"{name} fails: {printable(' '.join(done.stderr.split()), 200)}")
    return done.stdout
