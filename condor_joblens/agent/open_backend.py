"""Which backend counts on this node: programs in the kernel, or /proc if those can't be loaded."""

from __future__ import annotations

from collections.abc import Callable

from condor_joblens.common.config import Config
from condor_joblens.common.errors import JobLensError
from condor_joblens.jobs.cgroups import Tree, depths_of
from condor_joblens.model.levels import Level
from condor_joblens.owner_files.operations import OwnerFiles
from condor_joblens.tracer.backend_protocol import Backend
from condor_joblens.tracer.bpf import Tracer

LINGER_SECONDS = 20.0
"""A sensor stays in the kernel for so long after its last job. The next such job is often there a moment later, and
would be at level basic for the 0.2 s that loading takes."""

LINGER_ATTACHED = 2.0
"""For so long it stays attached if it is kept loaded: to attach it again takes some milliseconds."""

_ONLY_VERSION_1 = "no cgroup v2 tree is mounted, by which programs in the kernel tell jobs apart"


def open_source(config: Config, tree: Tree, bases: list[str], files: OwnerFiles, log: Callable[[str], None]) -> Backend:
    """The backend that JOBLENS_SOURCE names, watching for slots directly below the cgroups `bases`.

    Raises JobLensError if it is unavailable; `auto` takes /proc instead and says why.
    """
    if config.source == "procfs":
        return _procfs(config, tree, bases, files, "JOBLENS_SOURCE = procfs")
    try:
        if tree.version == 1:
            raise JobLensError(f"{_ONLY_VERSION_1}: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")
        preloads = config.preload_io and config.max_level >= Level.IO
        tracer = Tracer(
            config.max_jobs,
            max_jobs={"io": config.max_jobs_io, "profile": config.max_jobs_io, "recorder": config.max_jobs_trace},
            linger_seconds=LINGER_ATTACHED if preloads else LINGER_SECONDS,
            profile_hz=config.profile_hz,
            recorder_bytes=config.recorder_bytes,
            keep_loaded=("io",) if preloads else (),
        )
    except JobLensError as error:
        if config.source == "bpf":
            raise
        log(f"{error}; numbers come from /proc until joblensd is started anew (JOBLENS_SOURCE)")
        return _procfs(config, tree, bases, files, "the kernel's counters can't be had, see JobLensdLog")
    for warning in tracer.warnings:
        log(warning)
    tracer.classify_filesystems(config.filesystem_classes.numbers)
    tracer.limit_process_events(config.max_events)
    ids = [tree.identity(base) for base in bases]
    tracer.watch_below([identity for identity in ids if identity is not None], depths_of(bases))
    if tracer.replaced:
        log("the programs of another version were in the kernel and have been replaced")
    return tracer


def _procfs(config: Config, tree: Tree, bases: list[str], files: OwnerFiles, why: str) -> Backend:
    from condor_joblens.tracer.procfs import ProcfsTracer  # with psutil, for the few nodes that need it

    try:
        return ProcfsTracer(config.max_jobs, [tree.path(base) for base in bases], why, files)
    except OSError as error:
        raise JobLensError(f"{error.filename or error.strerror}: cgroups can't be watched: {error.strerror}") from None
