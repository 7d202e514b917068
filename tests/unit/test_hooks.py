"""What condor_master and condor_startd start: shells that make the ground ready for a Python."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

HOOKS = Path(__file__).parents[2] / "hooks"
PYTHON = "/opt/joblens/bin/python"
STARTED = sorted(path.name for path in HOOKS.iterdir() if path.is_file() and f"exec {PYTHON}" in path.read_text())


def test_all_that_start_a_python_are_known() -> None:
    assert STARTED == [
        "joblens-door", "joblens-eventlog", "joblens-export", "joblens-relay", "joblens_publish", "joblensd"
    ]  # fmt: skip


@pytest.mark.parametrize("name", STARTED)
def test_a_reconfig_while_python_starts_does_not_end_it(name: str, tmp_path: Path) -> None:
    """condor_master tells whatever it has started, also who has no handler yet."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nkill -HUP $$\ngrep SigIgn: /proc/self/status\necho "$@"\n')
    hook = tmp_path / name
    hook.write_text((HOOKS / name).read_text().replace(PYTHON, str(python)))
    for path in (python, hook):
        path.chmod(0o755)
    done = subprocess.run(
        [hook, "an argument"], stdout=subprocess.PIPE, text=True, check=True, env={"PATH": os.defpath}, timeout=60
    )
    ignored, arguments = done.stdout.splitlines()
    assert int(ignored.split()[1], 16) & 1 << signal.SIGHUP - 1
    assert arguments.startswith("-I -m condor_joblens.") and arguments.endswith("an argument")
