"""Level io when joblensd is killed: what a job did is in its last numbers to the byte, or they say what they lack.

The jobs write to a file on a tmpfs and read it, so often as their arguments say: nothing else of them is on a tmpfs.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest
from harness import Ad, Pool
from test_faults import AGENT, process, wait_for_another, wait_for_rows

FOLDER = "/var/lib/joblens-test-io"
WAITS = "/home/alice/waits"
"""FIFOs: of its own, because whoever opens one in another test's job waits for ever."""

BYTES = 777

PROGRAM = f"""
mkdir -p {FOLDER}
cat >{FOLDER}/io.py <<end
import os, sys
path = f"/dev/shm/joblens-test-{{os.getpid()}}"
file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
os.unlink(path)
for given in sys.argv[1:]:
    if given.isdigit():
        for _ in range(int(given)):
            os.pwrite(file, b"x" * {BYTES}, 0)
            os.pread(file, {BYTES}, 0)
    else:
        os.close(os.open(given + ".reached", os.O_CREAT))
        open(given).read()  # a FIFO: until somebody has written to it
end
chmod -R a+rX {FOLDER}
"""


@pytest.fixture(autouse=True)
def watched_again(brisk: Pool) -> Iterator[None]:
    """Level io is there before a job begins; and joblensd after the test."""
    brisk.shell(PROGRAM)
    beside = brisk.submit('executable = /bin/sleep\narguments = 600\n+JobLensLevel = "io"\nqueue')
    brisk.until(lambda: brisk.usage(beside).get("Level") == "io", "level io in the kernel")
    brisk.shell(f"mkdir -p {WAITS}", user="alice")
    yield
    brisk.clean()
    brisk.shell(f"rm -r {WAITS}")
    brisk.until(lambda: process(brisk, AGENT), "joblensd")
    wait_for_rows(brisk)


def submit(pool: Pool, *arguments: int | str) -> int:
    """A job at io that does this; words are FIFOs at which it waits."""
    waits = [f"{WAITS}/{each}" for each in arguments if isinstance(each, str)]
    pool.shell("".join(f"rm -f {path} {path}.reached; mkfifo {path}; " for path in waits) or ":", user="alice")
    given = " ".join(f"{WAITS}/{each}" if isinstance(each, str) else str(each) for each in arguments)
    program = f"executable = /usr/bin/python3\narguments = {FOLDER}/io.py {given}\n"
    return pool.submit(f'{program}+JobLensLevel = "io"\nqueue')


def let_run_on(pool: Pool, name: str) -> None:
    """Lets the job that waits at this FIFO do what is next."""
    pool.shell(f"echo >{WAITS}/{name}", user="alice")


def files(usage: Ad) -> Ad:
    """What was done on the tmpfs."""
    found: Ad = usage.get("Fs", {}).get("Tmpfs", {})
    return found


def did(times: int) -> Ad:
    """The same of a job that has written and read so often."""
    return {
        "Opens": 1,
        "FailedOpens": 0,
        "ReadCalls": times,
        "WriteCalls": times,
        "ReadBytes": times * BYTES,
        "WriteBytes": times * BYTES,
    }


def wait_for(pool: Pool, cluster: int, times: int) -> None:
    """The job's ad says that it has done so much."""
    pool.until(lambda: files(pool.usage(cluster)) == did(times), f"{times} writes in the ad of job {cluster}")


@pytest.mark.soak
def test_the_kernel_counts_on_at_io_while_joblensd_is_killed(brisk: Pool) -> None:
    """One job works before, meanwhile and afterwards, and one ends meanwhile."""
    through, ending = submit(brisk, 1000, "first", 200, "second", 30), submit(brisk, 2000, "third", 300)
    wait_for(brisk, through, 1000)
    wait_for(brisk, ending, 2000)
    with brisk.without_joblensd(signal.SIGKILL) as killed:
        let_run_on(brisk, "first")
        let_run_on(brisk, "third")
        brisk.wait_ended(ending)
    wait_for_another(brisk, AGENT, killed)
    wait_for(brisk, through, 1200)
    let_run_on(brisk, "second")
    for usage, times in ((brisk.last_usage(through), 1230), (brisk.last_usage(ending), 2300)):
        assert (usage["Level"], usage["Complete"], usage["Lost"]) == ("io", True, 0)
        assert files(usage) == did(times)
        # on a busy machine the decision can come while Python is still starting: nothing that counts here is missed
        assert re.search(r"level io began (?!0\.\d+ s after the job)", usage.get("Note", "")) is None


def test_a_job_that_begins_without_joblensd_says_what_its_numbers_of_io_lack(brisk: Pool) -> None:
    """Nobody made the kernel count its calls: they are counted from the moment in which joblensd is back."""
    with brisk.without_joblensd(signal.SIGKILL) as killed:
        cluster = submit(brisk, 1000, "late", 50)
        brisk.until((brisk.root / f"{WAITS}/late.reached".lstrip("/")).exists, "the job to have come to its FIFO")
    wait_for_another(brisk, AGENT, killed)
    brisk.until(lambda: brisk.usage(cluster).get("Level") == "io", "level io")
    let_run_on(brisk, "late")
    usage = brisk.last_usage(cluster)
    assert files(usage) == {**did(50), "Opens": 0, "FailedOpens": 0}
    assert re.search(r"level io began [\d.]+ s after the job: ", usage["Note"])


def test_the_next_job_in_a_slot_has_nothing_of_the_one_before(brisk: Pool) -> None:
    """The same slot of HTCondor, and rows of the kernel's that were used before."""
    slots: list[str] = []
    for times in (5000, 7):
        brisk.until(
            lambda: not {slot["Name"] for slot in brisk.slots_of_startd()} & {*slots}, "the first job's slot to go"
        )
        cluster = submit(brisk, times - 1, "decided", 1)  # a job that ends before it is decided about has no io
        wait_for(brisk, cluster, times - 1)
        let_run_on(brisk, "decided")
        usage = brisk.last_usage(cluster)
        assert (usage["Level"], usage["Complete"], usage["Lost"]) == ("io", True, 0)
        assert files(usage) == did(times)
        slots.append(brisk.job(cluster)["LastRemoteHost"])
    assert slots[0] == slots[1]
