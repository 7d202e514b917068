"""The exporter: the child of the supervisor (supervisor.py), which hands it the configuration and the page's socket.

SIGHUP takes a new configuration, SIGTERM ends it. `python -m condor_joblens.export` without a number runs it alone, by
whoever is not root: it then asks HTCondor for the configuration, and listens, itself.
"""

from __future__ import annotations

import os
import sys

from condor_joblens.common import allocator, listening
from condor_joblens.common.daemon import Daemon, run
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.privilege import service_ids
from condor_joblens.common.signals import Stop
from condor_joblens.export.exporter import Exporter
from condor_joblens.export.handover import Handover


def main() -> int:
    """Runs until SIGTERM. Returns 0, or 1 if it can't run (any longer)."""
    daemon = Daemon("joblens-export", "JOBLENS_EXPORT", "JobLensExportLog", "FULL_HOSTNAME|EXECUTE")
    _give_memory_back()
    handed = Handover(int(sys.argv[1])) if sys.argv[1:] else None
    try:
        if service_ids():
            raise JobLensError("root starts condor_joblens.export.supervisor, which starts this as another user")
        _read_macros(daemon, handed)
        daemon.open_log()
    except JobLensError as error:
        daemon.log.error(f"joblens-export can't run: {error}")
        return 1
    daemon.log(f"joblens-export runs as user id {os.getuid()}, pid {os.getpid()}")
    exporter = Exporter(daemon.log, daemon.macros, handed.listen if handed else listening.listen)
    try:
        while True:
            if daemon.signals.wait():
                _reconfigure(daemon, exporter, handed)
    except Stop:
        exporter.stop()
    daemon.log("joblens-export stops")
    return 1 if exporter.exhausted else 0


def _read_macros(daemon: Daemon, handed: Handover | None) -> None:
    if handed:
        daemon.macros = handed.macros()
    else:
        daemon.read_macros()


def _reconfigure(daemon: Daemon, exporter: Exporter, handed: Handover | None) -> None:
    daemon.log("reconfiguring")
    try:
        _read_macros(daemon, handed)
    except JobLensError as error:
        daemon.log.error(f"{error}; the configuration stays as it was")
        return
    daemon.open_log()
    exporter.reconfigure(daemon.macros)


def _give_memory_back() -> None:
    """Lets large buffers go back to the system at once, and threads share what is small.

    Else each thread's own arena keeps the most that it ever had: twice the memory with four sinks.
    """
    allocator.tune({allocator.ARENA_MAX: 2, allocator.MMAP_THRESHOLD: 256 << 10})


if __name__ == "__main__":
    run(main)
