"""Level io from the first instruction: jobs that do all that they do in their first moments.

Each fails to open files on a tmpfs as the first that it does, and sleeps for a second. Nothing else of it is there.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Ad, Pool
from test_policies import policy

FOLDER = "/var/lib/joblens-test-first"
OPENS = 50
JOBS = 5

# redirections of a builtin: nothing is started, and a script that can't open a file goes on
PROGRAM = f"""
mkdir -p {FOLDER}
cat >{FOLDER}/first.sh <<'end'
i=0
while [ $i -lt {OPENS} ]; do {{ read -r x </dev/shm/joblens-test-absent-$i; }} 2>/dev/null; i=$((i+1)); done
sleep 1
end
chmod -R a+rX {FOLDER}
"""
SUBMIT = f"executable = /bin/sh\narguments = {FOLDER}/first.sh\n"

REFUSED = 'rule "refused" { when = { JobLensNote = "refused" }, cap = "basic", reason = "not this one" }\n'


@pytest.fixture(autouse=True)
def rule(brisk: Pool) -> Iterator[None]:
    """Jobs of one kind are refused, and the others get what they ask for."""
    brisk.shell(PROGRAM)
    with policy(brisk, REFUSED, "90-first.lua"):
        yield


def is_whole(usage: Ad) -> bool:
    """Whether every open of the job is in its last numbers."""
    failed = usage.get("Fs", {}).get("Tmpfs", {}).get("FailedOpens")
    return bool(failed == OPENS and usage["Errors"]["ENOENT"] >= OPENS)


def is_declared(usage: Ad) -> bool:
    """Whether its ad says that something is missing, or has nothing of level io."""
    note = usage.get("Note", "")
    return ("Fs" not in usage and bool(note)) or "level io began" in note or not usage["Complete"]


@pytest.mark.every_suite
def test_what_a_job_does_in_its_first_moment_is_in_its_ad_if_its_level_is_confirmed(brisk: Pool) -> None:
    def ask() -> int:
        return brisk.submit(f'{SUBMIT}+JobLensLevel = "io"\nqueue {JOBS}')

    asking = ask()
    refused = brisk.submit(f'{SUBMIT}+JobLensLevel = "io"\n+JobLensNote = "refused"\nqueue {JOBS}')

    def one_is_whole() -> bool:
        """Of these jobs; on a busy machine all of them may be late, and then of those that are submitted next."""
        nonlocal asking
        usages = [brisk.last_usage(asking, process) for process in range(JOBS)]
        assert [usage for usage in usages if not is_whole(usage) and not is_declared(usage)] == []
        asking = asking if (found := any(is_whole(usage) for usage in usages)) else ask()
        return found

    brisk.until(one_is_whole, "a job whose first instructions are counted")
    for process in range(JOBS):
        usage = brisk.last_usage(refused, process)
        assert usage["Level"] == "basic"
        assert not {"Fs", "Errors", "Syscall", "Wait", "Udp", "Endpoints"} & usage.keys()
