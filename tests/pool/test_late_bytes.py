"""A job that ends while the kernel still sends what it wrote: no byte is missing, and none is counted twice."""

from __future__ import annotations

import json

from harness import Ad, Pool
from slow_reader import BYTES

PROGRAM = "/usr/src/condor_joblens/tests/pool/slow_reader.py"
PORT = 18096
GO = "/tmp/go-reader"


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
