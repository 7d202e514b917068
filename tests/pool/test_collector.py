"""What the hub reads of a real collector is what condor_status shows to people."""

from __future__ import annotations

import json
import time

from harness import Pool

from condor_joblens.hub.ingest.collector import QUESTION, machines

JOB = """
executable = /bin/sleep
arguments = 600
request_cpus = 1
queue
"""


def test_machines_of_the_pool_with_a_job(brisk: Pool) -> None:
    cluster = brisk.submit(JOB)
    try:
        brisk.until(lambda: brisk.job(cluster)["JobStatus"] == 2, "the job to run")
        brisk.until(lambda: _compared(brisk) > 0, "the collector to know that a core is claimed")
    finally:
        brisk.run("condor_rm", str(cluster), user="alice")


def _compared(pool: Pool) -> int:
    """How many cores are claimed, of the same moment or nearly: the collector may change between two questions."""
    (found,) = machines(pool.run("condor_status", *QUESTION).stdout.splitlines(), time.time())
    ads = json.loads(pool.run("condor_status", "-json").stdout)
    (version,) = {ad["CondorVersion"].split()[1] for ad in ads}
    assert (found["Node"], found["Version"]) == (ads[0]["Machine"], version)
    assert found["System"] == f"{ads[0]['OpSysAndVer']} {ads[0]['Arch']}"
    parts = [ad for ad in ads if ad.get("SlotType") != "Partitionable"]
    claimed = sum(ad["Cpus"] for ad in parts if ad["State"] in ("Claimed", "Preempting"))
    if found["ClaimedCores"] != claimed:
        return 0
    whole = sum(ad["Cpus"] for ad in ads), sum(ad["Memory"] for ad in ads)
    # a slot and what it was carved from come one after the other
    return claimed if (found["Cores"], found["MemoryBytes"] >> 20) == whole else 0
