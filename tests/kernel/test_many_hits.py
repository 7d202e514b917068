"""Hits of traced functions from several processes at a time, faster than they are taken."""

from __future__ import annotations

import os
import subprocess
from collections import Counter

import pytest
from ground import Slot, compiled

from condor_joblens.model.trace_spec import parse
from condor_joblens.profiling.elf import Elf
from condor_joblens.tracing.calls import Kind
from condor_joblens.tracing.functions import find
from condor_joblens.tracing.probes import ALL, LEAST_COST_NS, Probes

pytestmark = [pytest.mark.guest, pytest.mark.traces]

CALLS, PROCESSES = 30_000, 3
FUNCTIONS = "pushes", "marks"


def test_no_hit_is_made_of_two_and_what_is_not_told_is_counted(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring begins again and again. Each call has the number of those before it as its argument."""
    # in a guest, the file of a process that has got a mount namespace since it began has another name
    monkeypatch.setattr(Probes, "_trial", lambda self: LEAST_COST_NS)
    program = compiled("test_probed_calls", ["../../benchmarks/probed_calls.c"])
    cgroup = os.open(slot.path, os.O_RDONLY | os.O_DIRECTORY)
    file = os.open(program, os.O_RDONLY)
    probes = Probes(cgroup, os.getuid())
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([program], stdin=pipe, stdout=pipe, text=True, preexec_fn=slot.enter) for _ in range(PROCESSES)
    ]
    try:
        for number, name in enumerate(FUNCTIONS):
            (function,) = find(Elf(file), parse(f"*:{name}")).functions
            points = probes.add(function, parse(f"*:{name}"))
            probes.functions[number].has_arguments = number  # hits of one are longer
            for process in processes:
                probes.attach(number, file, function, points, process.pid)
        for number in range(len(FUNCTIONS)):
            probes.functions[number].allowed = ALL
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("".join(f"{name} {CALLS}\n" for name in FUNCTIONS))
            process.stdin.close()
        told: Counter[tuple[int, int]] = Counter()
        last: dict[tuple[int, int], int] = {}
        while True:
            are_over = all(process.poll() is not None for process in processes)
            hits = probes.take()
            for hit in hits:
                assert hit.kind in (Kind.ENTRY, Kind.RETURN)
                told[hit.pid, hit.function] += 1
                if hit.kind is Kind.ENTRY:
                    assert last.get((hit.pid, hit.function), -1) < hit.values[0] < CALLS, (hit, last)
                    last[hit.pid, hit.function] = hit.values[0]
            if are_over and not hits:
                break
        assert {pid for pid, _ in told} == {process.pid for process in processes}
        assert sum(told.values()) + probes.lost == 2 * CALLS * len(FUNCTIONS) * PROCESSES
    finally:
        probes.close()
        for process in processes:
            process.kill()
            process.wait()
        os.close(file)
        os.close(cgroup)
