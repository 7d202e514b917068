"""joblens-export as condor_master starts it: a small process that keeps the Prometheus page's port and the exporter.

It stays root, with the few capabilities below, and reads HTCondor's configuration and nothing else. It listens at the
address of the page, so that no local user can while the exporter is down. The exporter is its child: the user joblens,
with the network. SIGHUP reads the configuration again, SIGTERM ends both.
"""

from __future__ import annotations

import os
import signal

from condor_joblens.common.config_parser import parse
from condor_joblens.common.daemon import Daemon, run
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.listening import split
from condor_joblens.common.log import APPEND
from condor_joblens.common.page_address import page_address
from condor_joblens.common.privilege import as_owner, keep_only, no_new_privileges, service_ids
from condor_joblens.common.signals import Stop
from condor_joblens.common.trusted_folder import make_folders
from condor_joblens.export.exporter_process import ExporterProcess
from condor_joblens.export.page_port import PRIVILEGED_BELOW, PagePort

CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_KILL")
"""To start the exporter as another user, and to signal it. For a privileged port CAP_NET_BIND_SERVICE besides."""


def main() -> int:
    """Runs until SIGTERM. Returns 0, or 1 if it can't run."""
    daemon = Daemon(
        "joblens-export's supervisor", "JOBLENS_EXPORT", "JobLensExportLog", "FULL_HOSTNAME|EXECUTE", signal.SIGCHLD
    )
    try:
        ids = service_ids()
        daemon.read_macros()
        _open_log(daemon, ids)
        if ids:
            _make_spool(daemon, *ids)
            _give_up_privileges(page_address(daemon.macros))
    except JobLensError as error:
        daemon.log.error(f"joblens-export can't run: {error}")
        return 1
    port, exporter = PagePort(daemon.log, ids), ExporterProcess(daemon.log, ids)
    port.want(page_address(daemon.macros))
    try:
        while True:
            exporter.reap()
            port.look()
            if port.try_again():
                exporter.tell(daemon.macros, port.listener)
            exporter.start_if_due(daemon.macros, port.listener)
            waits = [seconds for seconds in (exporter.seconds(), port.seconds()) if seconds is not None]
            if daemon.signals.wait(min(waits, default=None)):
                _reconfigure(daemon, port, exporter, ids)
    except Stop:
        exporter.stop()
    return 0


def _reconfigure(daemon: Daemon, port: PagePort, exporter: ExporterProcess, ids: tuple[int, int] | None) -> None:
    try:
        daemon.read_macros()
    except JobLensError as error:
        daemon.log.error(f"{error}; the configuration stays as it was")
        return
    _open_log(daemon, ids)
    port.want(page_address(daemon.macros))
    exporter.tell(daemon.macros, port.listener)
    exporter.signal(signal.SIGHUP)


def _open_log(daemon: Daemon, ids: tuple[int, int] | None) -> None:
    def open_as_exporter(path: str) -> int:
        """The file is the exporter's: without its capabilities root may not write it, but may be this user."""
        with as_owner(*ids or (os.getuid(), os.getgid())):
            return os.open(path, APPEND, 0o644)

    daemon.log.open_as_owner = open_as_exporter
    daemon.open_log(ids)
    daemon.log.greatest = 0  # the exporter writes nearly all of this file, and it alone rotates it


def _give_up_privileges(address: str) -> None:
    privileged = address and split(address)[1] < PRIVILEGED_BELOW
    try:
        keep_only((*CAPABILITIES, "CAP_NET_BIND_SERVICE") if privileged else CAPABILITIES)
        no_new_privileges()
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
