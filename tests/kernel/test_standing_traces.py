"""Functions of a job are traced for its whole life: by all that begins in it, until it ends or its level does."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import pytest
from ground import until
from standing import Told, begin, counts
from traced_jobs import SECONDS, Traces, act, end, is_probed, job

from condor_joblens.common import descriptors
from condor_joblens.control.child_output import CONTENT, NOTICE
from condor_joblens.tracing import followers

DEPTH = 200  # of traced.cc

pytestmark = [
    pytest.mark.traces,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="functions are traced on x86-64 alone"),
]


def test_all_calls_of_a_job_with_two_processes_are_counted(traces: Traces) -> None:
    channel, told = None, Told()
    with job(traces.slot) as first:
        channel = begin(
            traces, "test_traced:plain(int, char*) -> int", "test_traced:work::throws", "test_traced:choose"
        )
        until(lambda: is_probed(first.pid) and is_probed(first.pid, "choose"), SECONDS)
        with job(traces.slot) as second:
            until(lambda: is_probed(second.pid) and is_probed(second.pid, "choose"), SECONDS)
            act(first)
            act(second)
            end(second)
        end(first)
        kept = told.rest(channel)
    assert counts(kept, "plain") == {"Calls": 84, "Returned": 84}
    assert counts(kept, "choose") == {"Calls": 64, "Returned": 64}
    assert counts(kept, "work::throws(int)") == {"Calls": 80, "Unwound": 80}
    assert {each.counts["Processes"] for each in kept.functions} == {2}
    last = told.sums[-1]
    assert (last.calls, last.unwound) == (84 + 64 + 80, 80) and last.begun > 0
    assert last.unseen is not None and last.unseen > 0
    assert sorted(each.name for each in last.functions) == ["choose", "plain", "work::throws(int)"]
    plain = [call for call in kept.calls if kept.functions[call.function].name == "plain"]
    assert len(plain) == 84 and {call.pid for call in plain} == {first.pid, second.pid}
    assert {call.end for call in kept.calls} == {"returned", "unwound"}
    total = sum(count for _, count in kept.functions[0].times.counts())
    assert total == kept.functions[0].counts["Returned"]


def test_who_follows_is_told_each_call_from_then_on(traces: Traces) -> None:
    told, calls, sums = Told(), [], []
    with job(traces.slot) as process:
        channel = begin(traces, "test_traced:deep")
        until(lambda: told.receive(channel) and told.has_probed("deep"), SECONDS)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                descriptors.send(channel, followers.request(SECONDS), [theirs.fileno()])
            ours.settimeout(SECONDS)
            assert ours.recv(1 << 16)[:1] == NOTICE
            act(process)
            end(process)
            told.rest(channel)
            while message := ours.recv(1 << 16):
                if message[:1] == CONTENT:
                    said = json.loads(message[1:])
                    calls += said.get("calls", [])
                    sums += said.get("summary", [])
    assert {call[3] for call in calls} == {"deep"} and len(calls) == DEPTH + 1
    assert [(each["Calls"], each["NotShown"]) for each in sums] == [(DEPTH + 1, 0)]


def test_the_tree_has_each_call_once(traces: Traces) -> None:
    told = Told()
    with job(traces.slot) as process:
        channel = begin(traces, "test_traced:deep")
        until(lambda: is_probed(process.pid, "deep"), SECONDS)
        act(process)
        end(process)
        kept = told.rest(channel)
    assert [(node.parent, node.calls) for node in kept.tree] == [(at - 1, 1) for at in range(len(kept.tree))]
    assert sum(node.calls for node in kept.tree) + kept.folded == DEPTH + 1
    seconds = [node.seconds for node in kept.tree]
    assert seconds == sorted(seconds, reverse=True)


def test_what_is_not_there_so_far_is_waited_for_and_what_has_no_such_name_is_said(traces: Traces) -> None:
    """A wrapper begins the job: at first the program is another one."""
    told = Told()
    with job(traces.slot) as wrapper:
        channel = begin(traces, "test_traced:plian", "later:plain")
        while not told.notices:
            assert told.receive(channel)
        assert told.notices[0].endswith("has no function like plian; is it one of these: plain?")
        until(lambda: told.receive(channel) and len(told.sums) > 1, SECONDS)
        assert {each.begun for each in told.sums} == {0.0}
        end_of(wrapper)
    told.rest(channel)


def end_of(process: Any) -> None:
    """It is told nothing at all, and ends."""
    process.stdin.close()
    process.wait()


def test_without_joblensd_its_probes_are_gone(traces: Traces) -> None:
    with job(traces.slot) as process:
        channel = begin(traces, "test_traced:plain")
        until(lambda: is_probed(process.pid), SECONDS)
        channel.close()
        until(lambda: not is_probed(process.pid), SECONDS)
        act(process)
        end(process)
