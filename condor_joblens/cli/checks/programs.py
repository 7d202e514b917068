"""What is in the kernel for us, level by level, and what each program costs."""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any

from condor_joblens.cli import units
from condor_joblens.cli.checks.checked_node import CheckedNode, Finding, fail, ok, warn
from condor_joblens.common import kernel_limits, unsafe_kernels
from condor_joblens.common.bpffs import PINS
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.model.levels import CRASHES, SAMPLES, WAITS

TRACES, REMEMBERS = (6, 6), (5, 12)
"""The first kernels that let `joblens trace` work, and keep a job's last events."""

IN_LATER_KERNELS = (((6, 3), "UDP at the end of calls on sockets, not where read() or io_uring sent it"),)
"""Kernel that gives all of it -> what earlier ones give instead."""

_ANEW = "condor_off -subsystem joblensd and condor_on -subsystem joblensd"
_LOG = f"see JobLensdLog in condor_config_val LOG, then {_ANEW}"


def source(node: CheckedNode) -> Iterator[Finding]:
    """Counters in the kernel, or /proc."""
    facts = facts_of(node)
    if facts is None:
        return  # joblensd does not run, which is said elsewhere
    if facts.get("Source") == "procfs":
        remedy = f"mend what is said of the kernel above, then {_ANEW}"
        if node.config.source == "procfs":
            yield ok("/proc, as JOBLENS_SOURCE says: docs/admin.md has what is less exact")
        else:
            yield warn(f"{printable(str(facts.get('Note')), 200)}: docs/admin.md has what that means", remedy)
    else:
        yield ok("counters in the kernel (bpf)")


def basic(node: CheckedNode) -> Iterator[Finding]:
    """Attached as long as joblensd runs."""
    facts = facts_of(node)
    if facts is None or facts.get("Source") == "procfs":
        return
    names = _programs(facts, "basic")
    if names:
        yield ok(f"{units.count(len(names), 'program')} attached: {', '.join(names)}")
    else:
        yield fail("no program is attached: nothing is counted", _LOG)
    yield from _refused(facts, "basic")


def io(node: CheckedNode) -> Iterator[Finding]:
    """Attached while a job is watched so closely."""
    facts = facts_of(node)
    if facts is None:
        return
    if facts.get("Source") == "procfs":
        text = "not to be had from /proc: jobs that ask for it get basic"
        yield ok(text) if node.config.source == "procfs" else warn(text, "see source")
        return
    names = _programs(facts, "io")
    yield from _refused(facts, "io")
    if names:
        yield ok(f"{units.count(len(names), 'program')} attached: {', '.join(names)}")
    else:
        yield ok("nothing is attached: no job is watched so closely, and nobody pays for it")


def _missing(facts: dict[str, Any], level: str) -> dict[str, str]:
    """Parts of a level that the kernel refused -> why."""
    found = facts.get("Missing") or {}
    return {name: why for name, why in found.items() if _level_of(name) == level}


def _level_of(part: str) -> str:
    from condor_joblens.model.servers import REQUESTS  # numpy with it, and doctor needs none before this

    if part.startswith(REQUESTS):
        return "basic"
    return "profile" if part in (SAMPLES, WAITS, CRASHES) else "io"


def _refused(facts: dict[str, Any], level: str) -> Iterator[Finding]:
    for name, reason in _missing(facts, level).items():
        yield warn(
            f"{printable(str(name), 60)} can't be counted here: {printable(str(reason), 300)}",
            "a later kernel may have it: docs/kernels.md",
        )


def gives(node: CheckedNode) -> Iterator[Finding]:
    """What this kernel can give at each level, a line a level."""
    facts = facts_of(node)
    if facts is None:
        return
    release = (node.read("/proc/sys/kernel/osrelease") or "").strip()
    version = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    less = [text for since, text in IN_LATER_KERNELS if version < since]
    refused = {
        level: [f"no {printable(str(name), 60)}" for name in _missing(facts, level)]
        for level in ("basic", "io", "profile")
    }
    if facts.get("Source") == "procfs":
        yield ok("basic: CPU, memory, I/O and faults of what is seen; no TCP, no counts of processes, no death")
        yield ok("io, profile, trace: nothing")
        return
    yield ok(f"basic: {'; '.join(refused['basic']) or 'everything'}")
    yield ok(f"io: {'; '.join(less + refused['io']) or 'everything'}")
    unsafe = unsafe_kernels.why_refused(release, node.read("/proc/sys/kernel/version") or "")
    lacks = unsafe or "; ".join(filter(None, (kernel_limits.of_stacks(release), *refused["profile"])))
    yield ok(f"profile: what io gives, and samples of stacks{f', but {lacks}' if lacks else ''}")
    later = [(TRACES, "joblens trace"), (REMEMBERS, "joblens last")]
    has = [what for since, what in later if version >= since]
    yield ok(f"trace: what profile gives{', and ' if has else ''}{' and '.join(has)}")


def facts_of(node: CheckedNode) -> dict[str, Any] | None:
    """What joblensd says of itself in the file `attached`; None where it does not run. Raises JobLensError."""
    try:
        with open(os.path.join(node.run_dir, "attached"), encoding="utf-8") as file:
            facts = json.load(file)
    except FileNotFoundError:
        return None
    except ValueError:
        raise JobLensError(f"{node.run_dir}/attached is not joblensd's: remove it") from None
    return facts if isinstance(facts, dict) else None


def _programs(facts: dict[str, Any], level: str) -> list[str]:
    return [printable(str(each["Name"]), 60) for each in facts.get("Programs", []) if each.get("Level") == level]


# -- costs ----------------------------------------------------------------------------------------------------


def costs(node: CheckedNode) -> Iterator[Finding]:
    """What each program takes, measured by the kernel for some seconds, on request: it costs each run 20 ns more."""
    if not node.cost_seconds or not node.live:
        return
    if node.uid != 0:
        yield warn("only root can have the kernel measure its programs", "run joblens doctor --costs as root")
        return
    from condor_joblens.tracer._bpf import ffi, lib

    on = lib.bpf_enable_stats(lib.BPF_STATS_RUN_TIME)
    if on < 0:
        why = os.strerror(ffi.errno or errno.ENOSYS)
        yield warn(f"the kernel does not measure its programs: {why}", "kernel 5.8 and later do, for root")
        return
    try:
        before, began = _run_times(), time.monotonic()
        time.sleep(node.cost_seconds)
        after, seconds = _run_times(), time.monotonic() - began
    finally:
        os.close(on)
    if not after:
        yield warn(f"no program is pinned under {PINS}: what is attached can't be found", "see pins")
        return
    yield from _shares(before, after, seconds)


def _shares(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]], seconds: float) -> Iterator[Finding]:
    spent = {
        name: (after[name][0] - before[name][0], after[name][1] - before[name][1]) for name in after if name in before
    }
    for name, (nanoseconds, runs) in sorted(spent.items(), key=lambda item: -item[1][0]):
        if runs > 0:
            each = f"{runs / seconds:,.0f} runs a second of {nanoseconds / runs:,.0f} ns"
            yield ok(f"{name}: {each}: {nanoseconds * 1e-7 / seconds:.3f} % of a core")
    idle = sum(runs <= 0 for _, runs in spent.values())
    total = sum(nanoseconds for nanoseconds, _ in spent.values()) * 1e-9 / seconds
    rest = f", {units.count(idle, 'program')} did not run" if idle else ""
    yield ok(f"all of them: {100 * total:.3f} % of a core over {seconds:.1f} s{rest}")


def _run_times() -> dict[str, tuple[int, int]]:
    """Nanoseconds and runs so far of each pinned program."""
    from condor_joblens.tracer._bpf import ffi, lib

    found = {}
    runs = ffi.new("uint64_t *")
    for folder, _, names in os.walk(PINS):
        if os.path.basename(folder) != "programs":
            continue
        for name in names:
            descriptor = lib.bpf_obj_get(os.fsencode(os.path.join(folder, name)))
            if descriptor >= 0:
                nanoseconds = int(lib.program_run_ns(descriptor, runs))
                found[name] = (nanoseconds, int(runs[0]))
                os.close(descriptor)
    return found
