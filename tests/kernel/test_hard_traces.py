"""Jobs that are hard to trace: other roots and user namespaces, files that change, programs with more rights."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import traced_jobs
from ground import until
from standing import Told, begin, counts
from traced_jobs import ALICE, SECONDS, Traces, act, end, is_probed, job, traced_program

from condor_joblens.profiles.traced_calls import TracedCalls

CALLS = {"Calls": 42, "Returned": 42}  # of `plain`, in a process

pytestmark = [
    pytest.mark.traces,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="functions are traced on x86-64 alone"),
]


@pytest.fixture
def program(traces: Traces, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the program, in the owner's folder, which jobs execute."""
    copy = traces.folder / "reco"
    shutil.copy(traced_program(), copy)
    monkeypatch.setattr(traced_jobs, "traced_program", lambda: copy)
    return copy


def replace(program: Path) -> None:
    """Another file stands under its name, as a compiler or `mv` leaves it."""
    other = program.with_name("other")
    shutil.copy(program, other)
    other.rename(program)


def root_with(folder: Path) -> Path:
    """A folder with the program, and all that it needs to run there."""
    root = folder / "root"
    said = subprocess.run(["ldd", traced_program()], capture_output=True, text=True, check=True).stdout
    for word in said.split():
        if word.startswith("/"):
            place = root / word.removeprefix("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, place)
    shutil.copy(traced_program(), root / "traced")
    return root


def test_a_job_in_another_root(traces: Traces) -> None:
    told, root = Told(), root_with(traces.folder)
    with job(traces.slot, root=root) as process:
        channel = begin(traces, "traced:plain", "libstdc++.so*:__cxa_begin_catch")
        for name in ("plain", "__cxa_begin_catch"):
            until(lambda: told.receive(channel) and told.has_probed(name), SECONDS)  # noqa: B023
        act(process)
        end(process)
        kept = told.rest(channel)
    assert counts(kept, "plain") == CALLS
    assert counts(kept, "__cxa_begin_catch") == {"Calls": 10, "Returned": 10}


def test_a_job_in_a_user_namespace_of_its_own(traces: Traces) -> None:
    told = Told()
    with job(traces.slot, by=("unshare", "--user", "--map-root-user")) as process:
        channel = begin(traces, "test_traced:plain")
        until(lambda: told.receive(channel) and told.has_probed("plain"), SECONDS)
        act(process)
        end(process)
        kept = told.rest(channel)
    assert counts(kept, "plain") == CALLS


def test_a_program_that_is_replaced_while_it_is_traced(traces: Traces, program: Path) -> None:
    """What runs goes on with the file that it has, and what begins then has the new one: both are counted."""
    told = Told()
    with job(traces.slot) as old:
        channel = begin(traces, "reco:plain")
        until(lambda: told.receive(channel) and told.has_probed("plain"), SECONDS)
        replace(program)
        with job(traces.slot) as new:
            until(lambda: told.receive(channel) and told.probed("plain") == 2, SECONDS)
            act(new)
            act(old)
            end(new)
        end(old)
        kept = told.rest(channel)
    assert summed(kept) == [CALLS, CALLS]


def test_a_program_that_was_replaced_before(traces: Traces, program: Path) -> None:
    told = Told()
    with job(traces.slot) as process:
        replace(program)
        channel = begin(traces, "reco:plain")
        until(lambda: told.receive(channel) and told.has_probed("plain"), SECONDS)
        act(process)
        end(process)
        kept = told.rest(channel)
    assert counts(kept, "plain") == CALLS and kept.functions[0].file == str(program)


def summed(kept: TracedCalls) -> list[dict[str, int]]:
    """How often each function was called and returned."""
    return [{key: each.counts[key] for key in CALLS} for each in kept.functions]


def test_a_program_with_more_rights_than_the_owner_is_counted_and_not_looked_at(traces: Traces) -> None:
    """A process of the job goes on as a set-user-id program, with its probes in the same library."""
    privileged = traces.folder / "privileged"
    shutil.copy(traced_program(), privileged)
    os.chown(privileged, ALICE + 1, ALICE + 1)
    privileged.chmod(0o4755)
    told = Told()
    with job(traces.slot, str(privileged)) as process:
        channel = begin(traces, "libstdc++.so*:__cxa_begin_catch(void*) -> void*")
        until(lambda: told.receive(channel) and told.has_probed("__cxa_begin_catch"), SECONDS)
        process.stdin.write("exec\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        until(lambda: os.readlink(f"/proc/{process.pid}/exe") == str(privileged), SECONDS)
        act(process)
        end(process)
        kept = told.rest(channel)
    assert counts(kept, "__cxa_begin_catch") == {"NotOurs": 20} and kept.calls == []


def test_a_job_goes_on_without_what_traces_it(traces: Traces) -> None:
    with job(traces.slot) as process:
        channel = begin(traces, "test_traced:plain")
        until(lambda: is_probed(process.pid), SECONDS)
        traces.kill_starter()
        until(lambda: not is_probed(process.pid), SECONDS)
        act(process)
        end(process)
        channel.close()
