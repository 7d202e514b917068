"""joblensd: started by condor_master from DAEMON_LIST; SIGHUP reads the configuration again, SIGTERM ends it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import grp
import os
import pwd
import resource
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from condor_joblens import __version__
from condor_joblens.agent import measure, warm_up
from condor_joblens.agent.backend import open_source
from condor_joblens.agent.levels import io_loading, level_arbiter, policy_decisions, policy_rounds
from condor_joblens.agent.lifecycle import process_events, recovery, slot_events
from condor_joblens.agent.node import OWN_CGROUP, Node
from condor_joblens.agent.output import artifacts, emit_events, program_stats, publishing
from condor_joblens.agent.requests import activate
from condor_joblens.agent.throttle import Paced
from condor_joblens.common import allocator
from condor_joblens.common.config import Config, parse, read_macros
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.log import Log, open_log
from condor_joblens.common.privilege import (
    NEEDED,
    forget_session_keys,
    keep_only,
    let_read,
    let_read_folder,
    no_new_privileges,
)
from condor_joblens.jobs.activation import ActivationSocket
from condor_joblens.jobs.cgroups import Tree
from condor_joblens.jobs.run_table import Ended, Runs
from condor_joblens.jobs.update_ad_watches import Watches
from condor_joblens.policy.asked import Limits
from condor_joblens.policy.client import PolicyChild
from condor_joblens.policy.files import read_policies
from condor_joblens.policy.slot_facts import SlotFacts
from condor_joblens.shm.artifacts import FOLDER, ArtifactWriter
from condor_joblens.shm.ring import EventWriter
from condor_joblens.shm.writer import Writer, file_bytes

MACROS = "^JOBLENS|EXECUTE$|^LOG$|^BASE_CGROUP$|^STARTD_ATTRS$|^STARTD_JOB_ATTRS$"

LARGE = 128 << 10
"""Bytes from which a piece of memory is the kernel's again as soon as it is free."""

RECONCILE_EVERY = 60.0
RETRY_EVERY = 60.0


class Stop(Exception):
    """SIGTERM has come."""


class Signals:
    """SIGTERM, SIGQUIT and SIGHUP as bytes in a socket, so that the loop sees them between two pieces of work.

    SIGALRM has a handler too: it means nothing, but interrupts a system call (see Paced).
    """

    def __init__(self) -> None:
        self.socket, self._write = socket.socketpair()
        self.socket.setblocking(False)
        self._write.setblocking(False)
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, lambda *_: None)

    def take(self) -> bool:
        """True where the configuration is to be read again. Raises Stop."""
        numbers = b""
        with contextlib.suppress(BlockingIOError):
            numbers = self.socket.recv(4096)
        if any(number in numbers for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT)):
            raise Stop
        return signal.SIGHUP in numbers


def main() -> int:
    """Runs until SIGTERM; the exit code."""
    forget_session_keys()
    os.umask(0o022)
    signals = Signals()
    macros, config, log = _configure(None)
    try:
        with _only_one(config.run_dir):
            # columns of all jobs are made and freed once a round: glibc would keep as much as there has been at most
            allocator.tune({allocator.MMAP_THRESHOLD: LARGE})
            _prepare_machine(log)
            node = _wait_for_kernel(macros, config, log, signals)
            _serve(node, signals)
    except Stop:
        log("stopped")
        return 0
    except JobLensError as error:
        log(str(error))
        return 1
    return 0


def _configure(log: Log | None) -> tuple[dict[str, str], Config, Log]:
    trouble = ""
    try:
        macros = read_macros(MACROS)
    except JobLensError as error:
        macros, trouble = {}, str(error)
    config, problems = parse(macros)
    path = macros.get("JOBLENSD_LOG") or os.path.join(macros.get("LOG", "/var/log/condor"), "JobLensdLog")
    if log is None:
        log = open_log(path, _owner_of(os.path.dirname(path)))
        log(f"joblensd {__version__} starts, process {os.getpid()}")
    for line in [trouble, *problems]:
        if line:
            log(line)
    return macros, config, log


def _owner_of(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_uid, status.st_gid


@contextlib.contextmanager
def _only_one(run_dir: str) -> Iterator[None]:
    """Holds the node's lock. Raises JobLensError where another joblensd has it, or the folder can't be used."""
    try:
        os.makedirs(run_dir, 0o755, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(os.path.join(run_dir, "joblensd.lock"), flags, 0o600)
    except OSError as error:
        remedy = "jobs run unwatched; make JOBLENS_RUN_DIR writable for root"
        raise JobLensError(f"{run_dir}: {error.strerror}: {remedy}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise JobLensError(
            f"another joblensd runs on this machine (it holds {run_dir}/joblensd.lock): stop one of the two"
        ) from None
    try:
        yield
    finally:
        os.close(lock)


def _prepare_machine(log: Callable[[str], None]) -> None:
    """What only root can do once: room for descriptors and maps, bpffs."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = max(hard, 65536) if os.geteuid() == 0 else hard
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    with contextlib.suppress(OSError, ValueError):
        # kernels before 5.11 charge maps to it
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
        if any(line.split()[2] == "bpf" and line.split()[1] == "/sys/fs/bpf" for line in mounts):
            return
    libc = ctypes.CDLL(None, use_errno=True)
    if os.path.isdir("/sys/fs/bpf") and libc.mount(b"bpf", b"/sys/fs/bpf", b"bpf", 0, b"mode=700") == 0:
        log("mounted bpffs at /sys/fs/bpf")


def _wait_for_kernel(macros: dict[str, str], config: Config, log: Log, signals: Signals) -> Node:
    """The node, as soon as the kernel plays along. Until then nothing listens, and jobs start without waiting."""
    said = ""
    while True:
        try:
            return _assemble(macros, config, log)
        except JobLensError as error:
            if str(error) != said:
                said = str(error)
                log(f"{said}; jobs run unwatched; tried again every {RETRY_EVERY:.0f} s")
        with selectors.DefaultSelector() as selector:
            selector.register(signals.socket, selectors.EVENT_READ)
            selector.select(RETRY_EVERY)
        if signals.take():
            macros, config, log = _configure(log)


def _assemble(macros: dict[str, str], config: Config, log: Log) -> Node:
    tree = Tree.find()
    bases = _bases(macros, config, tree)
    watched = [cgroup for cgroup in [*bases, OWN_CGROUP] if tree.identity(cgroup) is not None]
    tracer = open_source(config, tree, watched, log)
    group = _group("joblens", log)
    run_dir = config.run_dir
    runs = Runs(os.path.join(run_dir, "slots.state"), config.max_jobs)
    try:
        ended = Ended(os.path.join(run_dir, "ended"), group)
        rows = Writer(os.path.join(run_dir, "rows"), config.max_jobs, group)
        ring = EventWriter(os.path.join(run_dir, "events"), _ring_bytes(config, log), 0)
        kept = ArtifactWriter(os.path.join(run_dir, FOLDER), artifacts.limits(config))
    except OSError as error:
        raise JobLensError(f"{run_dir}: {error.strerror}: make room there or set JOBLENS_RUN_DIR") from None
    _let_exporter_read(os.path.join(run_dir, "events"), let_read, log)
    _let_exporter_read(kept.folder, let_read_folder, log)
    for name in ("rows", "ended"):
        _let_publisher_read(os.path.join(run_dir, name), macros, log)
    policies, problems = read_policies(config.policy_dir)
    for problem in problems:
        log(problem)
    policy = PolicyChild(policies, _limits(config), log, policy_rounds.PATHS)
    node = Node(config, log, tree, bases, _executes(macros), tracer, policy, runs, ended, rows, ring, kept, Watches())
    node.lost = emit_events.known_losses(node)
    node.slot_facts = _slot_facts(macros)
    policy.start()
    recovery.take_over(node)
    taken_over = ", counters taken over" if tracer.adopted else ""
    log(f"watches jobs below {', '.join('/' + base for base in bases)}{taken_over}")
    return node


def _ring_bytes(config: Config, log: Callable[[str], None]) -> int:
    """What JOBLENS_BUFFER_BYTES leaves for events beside the rows; a quarter at least."""
    rows = file_bytes(config.max_jobs) + file_bytes(Ended.KEPT)
    least = config.buffer_bytes // 4
    if rows + least > config.buffer_bytes:
        log(
            f"JOBLENS_BUFFER_BYTES = {config.buffer_bytes} is too little for JOBLENS_MAX_JOBS = {config.max_jobs}: "
            f"their rows take {rows} bytes, and events get {least} besides; set it to {2 * rows} or more"
        )
    return max(least, config.buffer_bytes - rows)


def _executes(macros: dict[str, str]) -> list[str]:
    """The folders below which the node's startds run jobs: EXECUTE, SLOT1_EXECUTE, LOCAL_UNIV_EXECUTE ..."""
    return sorted({value for name, value in macros.items() if name.upper().endswith("EXECUTE") and value[:1] == "/"})


def _slot_facts(macros: dict[str, str]) -> SlotFacts:
    """What of a slot's ad the policies see: also what the site gives its slots, and what the startd has of the job."""
    site, of_job = (macros.get(name, "").replace(",", " ").split() for name in ("STARTD_ATTRS", "STARTD_JOB_ATTRS"))
    return SlotFacts(site, of_job)


def _bases(macros: dict[str, str], config: Config, tree: Tree) -> list[str]:
    """Where slots appear. The folder is made where it is missing: its id must be known before the first job."""
    if config.base_cgroup != "auto":
        bases = [config.base_cgroup.strip("/")]
    else:
        name = macros.get("BASE_CGROUP") or "htcondor"
        bases = list(dict.fromkeys([tree.base(name), name]))
        bases = [base for base in bases if base == bases[0] or os.path.isdir(tree.path(base))]
    wanted = [bases[0], OWN_CGROUP] if tree.hybrid else [bases[0]]
    for base in wanted:
        try:
            os.makedirs(tree.path(base), 0o755, exist_ok=True)
        except OSError as error:
            raise JobLensError(f"cgroup {tree.path(base)}: {error.strerror}; correct JOBLENS_BASE_CGROUP") from None
    return bases


def _group(name: str, log: Callable[[str], None]) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        log(f"there is no group {name}: only root can read the rows; run systemd-sysusers, or `make install` again")
        return 0


def _let_exporter_read(path: str, let: Callable[[str, int], None], log: Callable[[str], None]) -> None:
    """Command lines are in the events, and jobs' own texts in artifacts: only the user joblens may read them.

    Its group may not, because HTCondor's own user belongs to it.
    """
    try:
        let(path, pwd.getpwnam("joblens").pw_uid)
    except KeyError:
        log(f"there is no user joblens: only root can read {path}; run systemd-sysusers, or `make install` again")
    except OSError as error:
        log(f"{path} can't get an access list ({error.strerror}): joblens-export can't read it")


def _let_publisher_read(path: str, macros: dict[str, str], log: Callable[[str], None]) -> None:
    """The startd's cron job runs as HTCondor's own user: the owner of its log folder.

    By an access list, not by its membership in group joblens: the startd learns of a new group at its next restart
    only, which ends every job of the node.
    """
    owner = _owner_of(macros.get("LOG", "/var/log/condor"))
    try:
        if owner is not None and owner[0] != 0:
            let_read(path, owner[0])
    except OSError as error:
        log(f"{path} can't get an access list ({error.strerror}): the slots' ads stay empty until condor_restart")


def _limits(config: Config) -> Limits:
    cpu = config.policy_cpu_milliseconds / 1000
    return Limits(cpu_seconds=cpu, wall_seconds=50 * cpu)


def _serve(node: Node, signals: Signals) -> None:
    selector = selectors.DefaultSelector()
    socket_path = os.path.join(node.config.run_dir, "activate.sock")
    callers, folders = Paced(selector), Paced(selector)
    batches = process_events.Batches(node, selector)
    try:
        warm_up.end_of_a_job(node.config)
    except Exception as error:  # it costs the first job at level io its last numbers at most
        node.log(f"the first end of a job may be slow: {type(error).__name__}: {error}")
    # what is there by now stays: Python's collector of garbage need not look through it, for milliseconds, at an end
    gc.collect()
    gc.freeze()
    sock = ActivationSocket(socket_path, callers.selector, lambda request: activate.answer(node, request))
    _be_first(node.log)
    keep_only(tuple(NEEDED))
    no_new_privileges()
    selector.register(node.tracer.fileno(), selectors.EVENT_READ, lambda: slot_events.take(node))
    folders.selector.register(node.watches.fileno(), selectors.EVENT_READ, lambda: _slot_ads(node))
    selector.register(node.policy.fileno(), selectors.EVENT_READ, lambda: policy_decisions.decided(node))
    io_loading.Loading(node, selector)
    selector.register(signals.socket, selectors.EVENT_READ, lambda: _reload(node) if signals.take() else None)
    try:
        _loop(node, selector, lambda: callers.run(lambda: sock.expire(time.monotonic())), (callers, folders, batches))
    finally:
        # jobs that start from here on must not wait for an answer
        callers.run(sock.close)
        node.policy.stop()
        node.tracer.close()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(node.config.run_dir, "rows"))
            os.unlink(os.path.join(node.config.run_dir, program_stats.NAME))
        with contextlib.suppress(OSError):  # with jobs in it, it stays
            os.rmdir(node.tree.path(OWN_CGROUP))


def _slot_ads(node: Node) -> None:
    node.review.slot_ads.update(publishing.repair_ads(node))


def _be_first(log: Callable[[str], None]) -> None:
    """On a full node too we must run when the kernel tells that a job ended: its starter is woken right after us.

    We sleep nearly always and work for milliseconds, so nobody is kept waiting. What we start does not inherit it.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError as error:
        log(f"no real-time priority ({error.strerror}): on a full node some jobs' last numbers come after their end")
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -20)


def _loop(
    node: Node,
    selector: selectors.BaseSelector,
    expire: Callable[[], None],
    others: tuple[Paced | process_events.Batches, ...],
) -> None:
    urgent = node.tracer.fileno()  # ends of jobs: their starters are awake, and look for the last numbers once
    next_round = time.monotonic()
    next_reconcile = next_round + RECONCILE_EVERY
    while True:
        now = time.monotonic()
        rests = [other.timeout(now) for other in others]
        wait = min(max(0.0, next_round - now), node.policy.timeout(now) or 3600.0, *rests)
        ready = [key for key, _ in selector.select(wait)]
        for key in sorted(ready, key=lambda key: key.fd != urgent):
            key.data()
        expire()
        now = time.monotonic()
        for other in others:
            other.resume(now)
        node.policy.expire(now)
        policy_decisions.decided(node)
        if now < next_round:
            continue
        next_round += node.config.period
        if next_round < now:  # the machine slept, or was too busy: rounds that were missed stay missed
            next_round = now + node.config.period
        if now >= next_reconcile:
            next_reconcile = now + RECONCILE_EVERY
            recovery.reconcile(node)
            node.artifacts.delete_old()
        _round(node)


def _round(node: Node) -> None:
    node.tracer.settle()
    node.own_cpu.measure(time.process_time(), time.monotonic())
    for step in (
        policy_decisions.give_up_asking,
        policy_decisions.release_held,
        policy_rounds.tick,
        level_arbiter.settle,
        measure.everything,
        emit_events.kernel_losses,
        publishing.rows,
    ):
        step(node)
        slot_events.take(node)  # with a thousand jobs all steps take tens of milliseconds: a starter looks sooner
    publishing.ads(node, lambda: slot_events.take(node))
    publishing.forget_last_ads(node)
    program_stats.publish(node)


def _reload(node: Node) -> None:
    """condor_reconfig: knobs and policies are read again; a knob that is wrong leaves its default."""
    macros, node.config, _ = _configure(node.log if isinstance(node.log, Log) else None)
    node.executes = _executes(macros)
    policies, problems = read_policies(node.config.policy_dir)
    for problem in problems:
        node.log(problem)
    node.policy.reload(policies, _limits(node.config))
    node.slot_facts = _slot_facts(macros)
    policy_rounds.reload(node)
    runs = node.runs.living()
    node.runs.rows["period_seconds"][runs] = np.maximum(node.config.period, node.runs.state["period_wanted"][runs])
    node.tracer.classify_filesystems(node.config.filesystem_classes.numbers)
    node.endpoints.rename(node.config.endpoint_names)
    node.artifacts.limit(artifacts.limits(node.config))
    node.log("configuration read again")


if __name__ == "__main__":
    sys.exit(main())
