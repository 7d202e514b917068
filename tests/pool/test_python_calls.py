"""A job that asks for the calls of its Python: whole with a newer Python, and said to be none with an older one."""

from __future__ import annotations

import json
from typing import Any

from harness import Pool

FIT = """
import sys, time


def fit(n):
    return n if n < 2 else fit(n - 1) + fit(n - 2)


fit(8)
print(sys.version_info[:2] >= (3, 12))
sys.stdout.flush()
while not __import__("os").path.exists("/home/alice/enough"):
    time.sleep(0.1)
"""
CALLS = 67
"""Of fit, for fit(8)."""


def test_calls_of_a_python_are_kept_or_it_is_said_why_not(brisk: Pool) -> None:
    (brisk.root / "home/alice/fit.py").write_text(FIT)
    brisk.shell("rm -f /home/alice/enough")
    before = len(brisk.log("JobLensdLog"))
    with brisk.config("JOBLENS_MAX_LEVEL = trace\nJOBLENS_MAX_JOBS_TRACE = 6"):
        brisk.run("joblens", "restart")
        cluster = brisk.submit(
            "executable = /usr/bin/python3\narguments = /home/alice/fit.py\nrequest_memory = 256\n"
            '+JobLensLevel = "trace"\n+JobLensTrace = "python:fit.py; python:fit(n)"\nqueue'
        )
        is_new = brisk.run("python3", "-c", "import sys; print(sys.version_info >= (3, 12))").stdout.strip() == "True"
        if is_new:
            brisk.until(lambda: brisk.usage(cluster).get("Level") == "trace", "level trace")
        else:
            brisk.until(lambda: "has no sys.monitoring" in str(brisk.usage(cluster).get("Note")), "a note")
        brisk.shell("touch /home/alice/enough", user="alice")
        brisk.wait_ended(cluster)
        if is_new:
            kept: list[dict[str, Any]] = brisk.until(lambda: parts(brisk, cluster), "calls of the Python")
            counts = {each["Function"]: each["Calls"] for each in kept[-1]["Functions"]}
            assert counts == {"fit (fit.py:5)": CALLS, "<module> (fit.py:1)": 1}
            assert [each["Arguments"] for each in kept[-1]["LastCalls"]][:3] == [None, ["n = 8"], ["n = 7"]]
        assert "may not make the system call" not in brisk.log("JobLensdLog")[before:]
    brisk.run("joblens", "restart")


def parts(pool: Pool, cluster: int) -> list[dict[str, Any]]:
    """What its owner sees of it; nothing if nothing is kept so far."""
    said = pool.run("joblens", "trace", f"{cluster}.0", "--json", user="alice", check=False).stdout
    found: list[dict[str, Any]] = json.loads(said or "[]")
    return found
