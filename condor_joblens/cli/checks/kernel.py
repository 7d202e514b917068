"""What the kernel of an execute node must have."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from condor_joblens import __file__ as package_file
from condor_joblens.cli.checks import programs
from condor_joblens.cli.checks.checked_node import CheckedNode, Finding, fail, ok, warn
from condor_joblens.common.bpffs import BPFFS, FSTAB_LINE, MOUNT_BPFFS, REMOUNT_BPFFS
from condor_joblens.common.errors import printable
from condor_joblens.common.privilege import AT_START, CAPABILITIES, NEEDED

_FOR_PROGRAMS = ("CAP_BPF", "CAP_PERFMON")

_OPENS_END, _MAPS_END = {"jl_open_end", "jl_file_open"}, "jl_map_end"
"""Programs at the end of functions of the kernel: see bpf_programs/failing."""

_OBJECTS = Path(package_file).parent / "tracer" / "objects"


def user(node: CheckedNode) -> Iterator[Finding]:
    """Root sees everything."""
    if node.uid == 0:
        yield ok("root, who sees everything")
    else:
        yield warn(f"uid {node.uid}, who can't see everything", "run it as root for the whole picture")


def kernel(node: CheckedNode) -> Iterator[Finding]:
    """Iterators over tasks came with 5.8, over TCP sockets with 5.9."""
    release = (node.read("/proc/sys/kernel/osrelease") or "").strip()
    match = re.match(r"(\d+)\.(\d+)", release)
    if match is None:
        yield fail("not Linux, or /proc is not mounted", "mount -t proc proc /proc")
    elif (int(match[1]), int(match[2])) >= (5, 9):
        yield ok(release)
    else:
        yield warn(
            f"{printable(release)}, older than 5.9, which what we need came with",
            "a distribution may have it in an older one: joblensd's log says whether it has; else update it",
        )


def btf(node: CheckedNode) -> Iterator[Finding]:
    """The programs find the kernel's structures by it."""
    if node.exists("/sys/kernel/btf/vmlinux"):
        yield ok("/sys/kernel/btf/vmlinux is there")
    else:
        remedy = "boot a kernel that is built with CONFIG_DEBUG_INFO_BTF=y"
        yield _without_programs(node, "/sys/kernel/btf/vmlinux is missing", remedy)


def _without_programs(node: CheckedNode, why: str, remedy: str) -> Finding:
    """No program can be loaded: how bad that is depends on where the numbers are to come from."""
    if node.config.source == "bpf":
        return fail(f"{why}, and JOBLENS_SOURCE = bpf: nothing is counted", remedy)
    if node.config.source == "procfs":
        return ok(f"{why}; does not matter: JOBLENS_SOURCE = procfs")
    return warn(f"{why}: numbers come from /proc, less exact and at level basic alone", remedy)


def capabilities(node: CheckedNode) -> Iterator[Finding]:
    """Those that a process started here can have at all: a container may have taken some away."""
    match = re.search(r"^CapBnd:\s*([0-9a-f]+)", node.read("/proc/self/status") or "", re.MULTILINE)
    if match is None:
        yield warn("/proc/self/status does not tell", "mount -t proc proc /proc")
        return
    bounding = int(match[1], 16)
    needed = {**NEEDED, **AT_START}
    missing = [name for name in needed if not bounding >> CAPABILITIES[name] & 1]
    remedy = "start condor_master where it has them: not in a container, or in one with --cap-add"
    programs = [name for name in missing if name in _FOR_PROGRAMS]
    others = [f"{name} (to {needed[name]})" for name in missing if name not in _FOR_PROGRAMS]
    if programs:
        yield _without_programs(node, f"{' and '.join(programs)} can't be had", remedy)
    if others:
        yield warn(f"can't be had: {', '.join(others)}", remedy)
    if not missing:
        yield ok(", ".join(needed))


def lockdown(node: CheckedNode) -> Iterator[Finding]:
    """`confidentiality` takes the kernel's memory from BPF programs."""
    modes = node.read("/sys/kernel/security/lockdown")
    mode = re.search(r"\[(\w+)\]", modes or "")
    if mode is None:
        yield ok("this kernel has none")
    elif mode[1] == "confidentiality":
        why = "the kernel is locked down for confidentiality: no program may read its memory"
        yield _without_programs(node, why, "boot with lockdown=integrity, or without Secure Boot")
    else:
        yield ok(mode[1])


def selinux(node: CheckedNode) -> Iterator[Finding]:
    """A daemon in condor_master's domain may be refused bpf though it has the capabilities."""
    if (node.read("/sys/fs/selinux/enforce") or "0").strip() != "1":
        yield ok("not enforcing")
        return
    try:
        log = node.read("/var/log/audit/audit.log")
    except PermissionError:
        yield warn("enforcing, and the audit log may be read by root only", "run joblens doctor as root")
        return
    denials = [line for line in (log or "").splitlines() if "avc:  denied" in line and _ours(line)]
    if denials:
        yield fail(
            f"enforcing, with {len(denials)} denials of ours in the audit log, the last one: "
            f"{printable(denials[-1], 200)}",
            "ausearch -m avc -c joblensd | audit2allow -M joblens && semodule -i joblens.pp",
        )
    else:
        yield ok("enforcing, and the audit log shows no denial of ours")


def _ours(line: str) -> bool:
    return "joblens" in line or "{ bpf }" in line or "{ perfmon }" in line


def cgroups(node: CheckedNode) -> Iterator[Finding]:
    """HTCondor gives a job its cgroup of version 2 if and only if /sys/fs/cgroup is of that version."""
    mounts = _cgroup2(node)
    if node.exists("/sys/fs/cgroup/cgroup.procs"):
        controllers = (node.read("/sys/fs/cgroup/cgroup.controllers") or "").split()
        if "memory" in controllers:
            yield ok(f"version 2 with {' '.join(controllers)}")
        else:
            yield warn(
                "version 2 without the memory controller: Memory.CgroupBytes and CgroupPeakBytes are absent",
                "boot with cgroup_enable=memory; in a container, have the controller delegated",
            )
    elif mounts:
        yield warn(
            f"version 1 beside version 2 ({mounts[0]}): HTCondor makes no cgroup of version 2 for jobs, "
            "so joblensd moves each job that has our wrapper into one of its own",
            "boot with systemd.unified_cgroup_hierarchy=1",
        )
    else:
        yield _without_programs(
            node, "version 1 alone: programs can't tell jobs apart", "boot with systemd.unified_cgroup_hierarchy=1"
        )


def pressure(node: CheckedNode) -> Iterator[Finding]:
    """Some distributions build PSI and leave it off."""
    try:
        known = node.read("/proc/pressure/cpu")
    except OSError as error:
        if error.errno == errno.EACCES:
            raise
        known = None  # EOPNOTSUPP: built and off
    if not known:
        yield warn("this kernel measures none: PressureSomeSeconds are absent", "boot with psi=1")
        return
    for mount in _cgroup2(node):
        if any(node.exists(f"{mount}/{name}/cpu.pressure") for name in node.names(mount)):
            yield ok("of the machine and of each cgroup")
            return
    yield warn("of the machine, not of cgroups: PressureSomeSeconds are absent", "boot without cgroup_disable=pressure")


def bpffs(node: CheckedNode) -> Iterator[Finding]:
    """Pins live there: with them counting outlives joblensd."""
    if not any(line.split()[1:3] == [BPFFS, "bpf"] for line in _mounts(node)):
        yield warn(
            f"not mounted at {BPFFS}: nothing is counted while joblensd is down",
            f"{MOUNT_BPFFS}, and in /etc/fstab: {FSTAB_LINE}",
        )
    elif node.mode(BPFFS) & 0o022:
        yield warn(
            f"mounted at {BPFFS}, where everybody may write: a user can take the place of joblensd's pins",
            f"{REMOUNT_BPFFS}, and in /etc/fstab: {FSTAB_LINE}",
        )
    else:
        yield ok(f"mounted at {BPFFS}")


def looks_at_jobs(node: CheckedNode) -> Iterator[Finding]:
    """Yama can keep a user from the memory of his own processes, and so what looks at a job as its owner."""
    scope = node.read("/proc/sys/kernel/yama/ptrace_scope")
    if scope is None:
        yield ok("this kernel has no Yama: a job's memory can be read as its owner")
    elif scope.strip() == "0":
        yield ok("kernel.yama.ptrace_scope = 0")
    else:
        yield warn(
            f"kernel.yama.ptrace_scope = {printable(scope.strip(), 20)}: in joblens hang and stacks, stacks end at "
            "their first function, mutexes have no holder, and Python has no functions",
            "kernel.yama.ptrace_scope = 0 in /etc/sysctl.d, if users may look into their own processes",
        )


def unprivileged_bpf(node: CheckedNode) -> Iterator[Finding]:
    """A setting that people ask about."""
    value = (node.read("/proc/sys/kernel/unprivileged_bpf_disabled") or "unknown").strip()
    yield ok(f"{printable(value)}; does not matter: joblensd has CAP_BPF")


def failed_calls(node: CheckedNode) -> Iterator[Finding]:
    """What `Death` can name at level basic, where no program is on calls."""
    facts = programs.facts_of(node) or {}
    attached = {str(each.get("Name")) for each in facts.get("Programs", [])}
    named = ["refused and unanswered connections"]
    if attached & _OPENS_END:
        named.append("opens and execs that failed")
    if _MAPS_END in attached:
        named.append("mmap that failed")
    if len(named) > 1:
        hooks = "by ends of this kernel's functions (fexit)"
    elif not _hooks_functions(node):
        hooks = "this kernel has no hooks at ends of its functions (fexit)"
    elif facts:
        hooks = "this kernel refuses programs at ends of its functions (fexit)"
    else:
        hooks = "with joblensd running, failed opens and execs too: this kernel has hooks for them (fexit)"
    yield ok(f"Death names {', '.join(named)} at basic, and failing calls with their paths at io; {hooks}")


def _hooks_functions(node: CheckedNode) -> bool:
    return (node.read("/proc/sys/kernel/ftrace_enabled") or "0").strip() == "1"


def objects(node: CheckedNode) -> Iterator[Finding]:
    """Our own files: the programs, and the modules in C that load them and order the shared memory."""
    names = sorted(path.name for path in _OBJECTS.glob("*.bpf.o"))
    if not names:
        yield fail(f"no BPF program in {_OBJECTS}", "make build, then make install")
        return
    package = _OBJECTS.parent.parent
    modules = ("tracer/_bpf", "shm/_shm", "sample/_files")
    missing = [module for module in modules if not list(package.glob(f"{module}.*so"))]
    if missing:
        yield fail(f"modules in C are missing: {', '.join(missing)}", "make build, then make install")
    else:
        yield ok(f"{', '.join(names)} in {os.path.relpath(_OBJECTS, package.parent)}")


def _cgroup2(node: CheckedNode) -> list[str]:
    return [line.split()[1] for line in _mounts(node) if line.split()[2] == "cgroup2"]


def _mounts(node: CheckedNode) -> list[str]:
    return [line for line in (node.read("/proc/mounts") or "").splitlines() if len(line.split()) > 2]
