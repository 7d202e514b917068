"""A job of which something outlives its first process: bytes that the kernel still sends, and other processes.

No byte is missing, and none is counted twice. What processes did that are ended later is counted on the node.
"""

from __future__ import annotations

import json

from harness import Ad, Pool
from slow_reader import BYTES

PROGRAM = "/usr/src/condor_joblens/tests/pool/slow_reader.py"
PORT = 18096
GO = "/tmp/go-reader"

LEFT = 3
LEAVING = f"""
executable = /bin/sh
arguments = "-c 'for i in $(seq {LEFT}); do sleep 1000 & done; sleep 0.3; exit 0'"
queue
"""


def on_node(pool: Pool, job: str) -> Ad:
    found: Ad = json.loads(pool.run("joblens", "job", job, "--json").stdout)["Job"]["JobLensUsage"]
    return found


def test_bytes_that_are_sent_after_the_end_are_counted(brisk: Pool) -> None:
    brisk.shell(f"rm -f {GO}; setsid python3 {PROGRAM} read {PORT} {GO} >/dev/null 2>&1 &")
    listens = f"grep -qi ':{PORT:04X} ' /proc/net/tcp"
    brisk.until(lambda: brisk.run("sh", "-c", listens, check=False).returncode == 0, "the reader")
    cluster = brisk.submit(f"executable = /usr/bin/python3\narguments = {PROGRAM} send {PORT}\nqueue")
    last = brisk.last_usage(cluster)["Tcp"]
    assert last["UnsentBytes"] > BYTES / 2, "its peer takes little"
    assert last["SentBytes"] + last["UnsentBytes"] == BYTES
    brisk.shell(f"touch {GO}")
    usage = brisk.until(
        lambda: (told := on_node(brisk, f"{cluster}.0")) and told["Tcp"]["UnsentBytes"] == 0 and told, "the rest"
    )
    assert (usage["Tcp"]["SentBytes"], usage["Final"], usage["Complete"]) == (BYTES, True, True)


def test_what_a_job_leaves_behind_is_counted_or_said_to_be_missing(brisk: Pool) -> None:
    """The starter kills it, and may read the last ad before it has ended. Then the ad says so."""
    cluster = brisk.submit(LEAVING)
    brisk.last_usage(cluster)
    usage = brisk.until(
        lambda: (told := on_node(brisk, f"{cluster}.0")) and told["Process"]["Live"] == 0 and told, "an empty slot"
    )
    assert usage["Process"]["Signalled"] == LEFT
    last = brisk.usage(cluster)
    if not last.get("Final"):
        return  # the starter has not found its last ad (test_many_jobs.py: nearly all do)
    process = last["Process"]
    assert process["Signalled"] + process["Live"] == LEFT
    assert process["Exited"] + process["Live"] == process["Forked"] + 1
    is_said = "lived on after its first one" in last.get("Note", "")
    assert is_said is (process["Live"] > 0) and not (is_said and last["Complete"])
