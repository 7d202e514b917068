"""joblens-export: started by condor_master from DAEMON_LIST; SIGHUP reads the configuration again, SIGTERM ends it.

condor_master starts it as root. It becomes the user joblens, who owns nothing and may read the rows, before it opens
anything but its log, which lies in HTCondor's folder.
"""

from __future__ import annotations

import os
import signal

from condor_joblens.common import allocator
from condor_joblens.common.config_parser import parse
from condor_joblens.common.daemon import Daemon, run
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.privilege import become, end_with_parent, service_ids
from condor_joblens.common.signals import Stop
from condor_joblens.common.trusted_folder import make_folders
from condor_joblens.export.exporter import Exporter


def main() -> int:
    """Runs until SIGTERM. Returns 0, or 1 if it can't run (any longer)."""
    daemon = Daemon("joblens-export", "JOBLENS_EXPORT", "JobLensExportLog", "FULL_HOSTNAME")
    _give_memory_back()
    try:
        ids = service_ids()
        daemon.read_macros()
        daemon.open_log(ids)
        if ids:
            _make_spool(daemon, *ids)
            _give_up_privileges(*ids)
    except JobLensError as error:
        daemon.log.error(f"joblens-export can't run: {error}")
        return 1
    daemon.log(f"joblens-export runs as user id {os.getuid()}, pid {os.getpid()}")
    exporter = Exporter(daemon.log, daemon.macros)
    try:
        while True:
            if daemon.signals.wait():
                _reconfigure(daemon, exporter)
    except Stop:
        exporter.stop()
    daemon.log("joblens-export stops")
    return 1 if exporter.exhausted else 0


def _reconfigure(daemon: Daemon, exporter: Exporter) -> None:
    daemon.log("reconfiguring")
    try:
        daemon.read_macros()
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


def _give_up_privileges(uid: int, gid: int) -> None:
    try:
        become(uid, gid)
        # an orphan would keep the address that the next condor_master's exporter wants
        end_with_parent(signal.SIGTERM)
    except OSError as error:
        raise JobLensError(f"the kernel does not let it give up its privileges: {error.strerror}") from None


def _make_spool(daemon: Daemon, uid: int, gid: int) -> None:
    """Makes the spool's folder, and those above it that are missing, for this user alone."""
    folder = parse(daemon.macros)[0].spool_dir
    try:
        make_folders(folder, uid, gid)
    except OSError as error:
        daemon.log.error(f"{folder} can't be made: {error.strerror}: make it, or set JOBLENS_SPOOL_DIR")


if __name__ == "__main__":
    run(main)
