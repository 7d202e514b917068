"""joblens-eventlog: started by condor_master from DAEMON_LIST on an access point; SIGTERM ends it.

Started as root it makes the folder of its cursor, and then becomes the user of joblens-export, for good. It has the
network, reads what everybody may read, and writes its log and its cursor.
"""

from __future__ import annotations

import os
import sys

from condor_joblens.common import privilege
from condor_joblens.common.config_parser import parse
from condor_joblens.common.daemon import Daemon, run
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.signals import Stop
from condor_joblens.common.trusted_folder import make_folders
from condor_joblens.eventlog.reader import Reader
from condor_joblens.model.metrics import empty_rows
from condor_joblens.sinks import SinkContext, registry

_CURSOR = "cursor"


def main() -> int:
    """Runs until SIGTERM. Returns 0, or 1 if it can't run."""
    macros = "EVENT_LOG(_FORMAT_OPTIONS|_JOB_AD_INFORMATION_ATTRS)?|FULL_HOSTNAME|LOG"
    daemon = Daemon("joblens-eventlog", "JOBLENS_EVENTLOG", "JobLensEventLogLog", macros)
    try:
        daemon.read_macros()
        daemon.open_log()
        reader = _reader(daemon)
        pause = 0.0
        while True:
            daemon.signals.wait(pause)  # knobs are taken at a restart
            pause = reader.step()
    except Stop:
        daemon.log("stopped")
        return 0
    except (JobLensError, OSError) as error:
        daemon.log.error(f"joblens-eventlog can't run: {error}")
    return 1


def _reader(daemon: Daemon) -> Reader:
    """Raises JobLensError, OSError."""
    macros = daemon.macros
    config, problems = parse(macros)
    for problem in problems:
        daemon.log.error(problem)
    path, node = macros.get("EVENT_LOG", ""), macros.get("FULL_HOSTNAME", "")
    if not path:
        raise JobLensError("EVENT_LOG is not set: this access point writes no event log")
    if "JSON" not in macros.get("EVENT_LOG_FORMAT_OPTIONS", "").upper():
        raise JobLensError("EVENT_LOG_FORMAT_OPTIONS has no JSON: write JSON, UTC, SUB_SECOND")
    sinks, wrong = registry.configure(["hub"], macros)
    if not sinks:
        raise JobLensError("; ".join(wrong))
    ids = privilege.service_ids()
    if ids:
        make_folders(config.event_log_dir, *ids)
        privilege.become(*ids)
    else:
        os.makedirs(config.event_log_dir, 0o700, exist_ok=True)
    privilege.no_new_privileges()
    privilege.not_dumpable()
    context = SinkContext(daemon.log, lambda: (empty_rows(0), 0.0), tuple, node)
    hub = sinks[0].sink(sinks[0].settings, context)
    daemon.log(f"follows {path} as user id {os.getuid()}")
    return Reader(path, os.path.join(config.event_log_dir, _CURSOR), node, hub, daemon.log)


if __name__ == "__main__":
    sys.exit(run(main))
