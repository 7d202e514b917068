"""A trigger that ships, at work on a real job: what it says comes into the job's ad, and its child into nobody's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Pool

SHIPPED = Path(__file__).resolve().parents[2] / "lua_policies" / "triggers"
JOB = """executable = /bin/bash
arguments = "-c 'while sleep 1; do ( exec -a -bash /bin/bash -c true ); done'"
queue
"""
"""A login shell each second: on a busy node, arguments of a few can be withheld (docs/triggers.md)."""


COMMANDS = """on("command", {Status = 3}, function(event, run)
    run:note("line " .. event.Line .. " ended with 3: " .. event.Words)
end)
"""
SCRIPT = """sleep 1
while sleep 1; do
    /bin/sh -c 'exit 3'
done
"""
SCRIPT_PATH = "/home/alice/steps.bash"
TRACED_JOB = f"""executable = /bin/bash
arguments = {SCRIPT_PATH}
+JobLensLevel = "trace"
+JobLensTrace = "bash"
queue
"""


@pytest.fixture(scope="module")
def pool(brisk: Pool) -> Iterator[Pool]:
    """The pool, with all triggers that ship in the folder that counts, and one about commands."""
    folder = brisk.root / "etc/joblens/triggers.d"
    folder.mkdir(parents=True, exist_ok=True)
    for path in SHIPPED.glob("*.lua"):
        shutil.copy(path, folder)
    (folder / "99-commands.lua").write_text(COMMANDS)
    with brisk.config("JOBLENS_MAX_LEVEL = trace"):
        brisk.run("joblens", "restart")
        try:
            yield brisk
        finally:
            for path in folder.glob("*.lua"):
                path.unlink()
    brisk.run("joblens", "restart")


def test_a_login_shell_in_a_job_is_noted_in_its_ad(pool: Pool) -> None:
    cluster = pool.submit(JOB)
    words = "a login shell runs in this job: bash"
    usage = pool.until(lambda: found if words in (found := pool.usage(cluster)).get("Note", "") else {}, "the note")
    assert words in usage["Note"]
    log = pool.log("JobLensdLog")
    assert "trigger 70-login-shell.lua:5: a login shell runs in this job" in log
    assert "trigger not in force" not in log and "the triggers' child" not in log


def test_a_command_of_a_script_is_told_to_a_trigger_and_recorded(pool: Pool) -> None:
    (pool.root / SCRIPT_PATH.lstrip("/")).write_text(SCRIPT)
    cluster = pool.submit(TRACED_JOB)
    words = "line 3 ended with 3: /bin/sh -c 'exit 3'"
    usage = pool.until(lambda: found if words in (found := pool.usage(cluster)).get("Note", "") else {}, "the note")
    assert words in usage["Note"]
    last = json.loads(pool.run("joblens", "last", f"{cluster}.0", "--json", user="alice").stdout)
    commands = [(each.get("Result"), each.get("About")) for each in last["Events"] if each["What"] == "command"]
    assert ("line 2", "sleep 1") in commands or ("line 2, after status 3", "sleep 1") in commands
