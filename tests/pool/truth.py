"""What the numbers of a job must be when the job is worker.py, which prints what it knows of itself."""

from __future__ import annotations

import json

from harness import Ad

WORKER = "executable = /usr/bin/python3\narguments = /usr/src/condor_joblens/tests/pool/worker.py "

# What the starter and the wrapper did in the very process that the job then became: the job's own rusage and io
# have it too, ours begin at its exec.
BEFORE_THE_JOB = {"CallReadBytes": 20_000, "ReadCalls": 30, "WriteCalls": 15, "MinorFaults": 400}

# The wrapper's shell and its helper, which says by its exit code that nobody answered, where joblensd was not there to
# begin counting after them.
WRAPPER = {"Forked": 1, "Executed": 2, "Exited": 1, "Failed": 1}


def check(final: Ad, output: str, with_wrapper: bool = False) -> None:
    """The final numbers are those of the job that wrote `output`."""
    truth = json.loads(output)
    assert (final["Final"], final["Complete"], final["Lost"]) == (True, not with_wrapper, 0)
    assert ("did not hear the wrapper" in final.get("Note", "")) == with_wrapper
    more = WRAPPER if with_wrapper else {}
    for name, value in truth["Process"].items():
        assert final["Process"][name] == value + more.get(name, 0), name
    assert {name: final["Tcp"][name] for name in truth["Tcp"]} == truth["Tcp"]
    assert final["Memory"]["LargestProcessPeakBytes"] == truth["Memory"]["LargestProcessPeakBytes"]
    if not with_wrapper:
        check_sums(final, truth)
        # all that it wrote by write(): its file and the truth itself
        assert final["Io"]["CallWriteBytes"] == 100 * 65536 + len(output)
    # its own end is in the cgroup's time, and not in what it could still ask for
    seconds = truth["Cpu"]["Seconds"]
    assert seconds - 0.02 <= final["Cpu"]["Seconds"] <= 1.1 * seconds + 0.05
    assert {final["Process"][name] for name in ("Live", "Threads", "Runnable", "Uninterruptible")} == {0}


def check_sums(final: Ad, truth: Ad) -> None:
    for group, names in (("Io", ("CallReadBytes", "ReadCalls", "WriteCalls")), ("Memory", ("MinorFaults",))):
        for name in names:
            assert truth[group][name] - BEFORE_THE_JOB[name] <= final[group][name] <= truth[group][name] + 1, name


def worked(usage: Ad) -> Ad:
    """The usage of a worker that has done its work and waits; empty before."""
    return usage if usage.get("Cpu", {}).get("Seconds", 0) > 1.0 else {}
