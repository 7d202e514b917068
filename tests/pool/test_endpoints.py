"""A job at level io: condor_q and condor_history tell which servers it talked to, by the site's names, to the byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from harness import Ad, Pool
from talker import NOBODY, PORT

TALKER = "/usr/src/condor_joblens/tests/pool/talker.py"
GO, END = "/home/alice/go-talker", "/home/alice/end-talker"
NAMES = f"JOBLENS_ENDPOINT_NAMES = 127.0.0.0/8:{PORT} = storage, nonsense, *:{NOBODY} = squid"


@dataclass
class Course:
    queue: Ad  # JobLensUsage in condor_q while it ran
    job_page: str  # joblens job, then
    record: Ad  # the same with --json
    history: Ad
    log: str


@pytest.fixture(scope="module")
def course(brisk: Pool) -> Iterator[Course]:
    pool = brisk
    pool.shell(f"rm -f {GO} {END}; setsid python3 {TALKER} serve {PORT} >/dev/null 2>&1 & echo $! >/tmp/talker.pid")
    try:
        with pool.config(NAMES):
            cluster = pool.submit(
                f'executable = /usr/bin/python3\narguments = {TALKER} {GO} {END}\n+JobLensLevel = "io"\nqueue'
            )
            pool.until(lambda: pool.usage(cluster).get("Level") == "io", "the job to be watched at io")
            pool.shell(f"touch {GO}")
            queue = pool.until(lambda: talked(pool.usage(cluster)), "its connections in condor_q")
            job_page = pool.run("joblens", "job", f"{cluster}.0").stdout
            record = json.loads(pool.run("joblens", "job", f"{cluster}.0", "--json").stdout)["Job"]
            pool.shell(f"touch {END}")
            (history,) = pool.wait_ended(cluster)
            yield Course(queue, job_page, record, history["JobLensUsage"], pool.log("JobLensdLog"))
    finally:
        pool.shell("kill $(cat /tmp/talker.pid); rm /tmp/talker.pid")


def talked(usage: Ad) -> Ad:
    is_done = usage.get("Tcp", {}).get("Failed") == 3 and usage.get("Udp", {}).get("DnsQueries") == 2
    return usage if is_done and len(usage.get("Endpoint", [])) == 3 else {}


@pytest.mark.parametrize("when", ["queue", "history"])
def test_the_greatest_endpoints_stand_in_the_ad(course: Course, when: str) -> None:
    usage: Ad = getattr(course, when)
    first, second, third = usage["Endpoint"]
    numbers = ("SentBytes", "ReceivedBytes", "Connections", "Failed")
    assert (first["Name"], first["Address"], first["Port"]) == ("storage", "127.0.0.1", PORT)
    assert [first[name] for name in numbers] == [50_000, 5_000, 5, 0]
    assert 0 < first["RttSeconds"] < 1
    assert "Name" not in second and (second["Address"], second["Port"]) == ("::1", PORT)
    assert [second[name] for name in numbers] == [6_000, 2_000, 2, 0]
    assert (third["Name"], third["Refused"]) == ("squid", 3)
    assert [third[name] for name in numbers] == [0, 0, 0, 3]
    assert (usage["Tcp"]["SentBytes"], usage["Tcp"]["Refused"]) == (56_000, 3)
    assert usage["Tcp"]["LoopbackSentBytes"] == 56_000
    assert (usage["Udp"]["DnsQueries"], usage["Udp"]["SentBytes"]) == (2, 60)


def test_joblens_job_shows_them(course: Course) -> None:
    assert "storage (127.0.0.1:18094)" in course.job_page and "[::1]:18094" in course.job_page
    *listed, rest = course.record["JobLensUsage"]["Endpoint"]
    assert [entry["SentBytes"] for entry in listed] == [50_000, 6_000, 0]
    assert rest["Scope"] == "rest" and rest["SentBytes"] == rest["Connections"] == rest["Failed"] == 0


def test_an_entry_of_the_table_that_is_nonsense_is_one_line(course: Course) -> None:
    said = [line for line in course.log.splitlines() if "JOBLENS_ENDPOINT_NAMES" in line and "nonsense" in line]
    assert said and all("is not PREFIX[:PORT] = NAME" in line for line in said)
