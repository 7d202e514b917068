"""joblensd: started by condor_master from DAEMON_LIST; SIGHUP reads the configuration again, SIGTERM ends it.

SIGUSR1 ends it and leaves what counts in the kernel, for the next one: see `joblens restart`.
"""

from __future__ import annotations

import signal
import sys

from condor_joblens.agent import configuration, helpers, loop, machine, run_folder, startup
from condor_joblens.common.daemon import Daemon
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.own_process import HelperLost
from condor_joblens.common.signals import HandOver, Stop


def main() -> int:
    """Runs until SIGTERM; the exit code."""
    # SIGALRM means nothing, but interrupts a system call: see signals.interrupting
    daemon = Daemon("joblensd", "JOBLENSD", "JobLensdLog", configuration.MACROS, signal.SIGALRM)
    config = configuration.read(daemon)
    try:
        with run_folder.locked(config.run_dir):
            machine.prepare(daemon.log)
            started = helpers.start(daemon, config.max_level, config.source)
            daemon.log.open_as_owner = started.owner_files.open_log
            loop.serve(startup.wait_for_kernel(daemon, config, started), daemon, started)
    except HelperLost as lost:
        # nobody left may start another; the kernel goes on counting, and the next joblensd takes the counters over
        daemon.log.error(f"{lost}: joblensd ends, and condor_master starts it again")
        return 1
    except HandOver:
        daemon.log("hands over: the kernel goes on counting until the next joblensd")
        return 0
    except Stop:
        daemon.log("stopped")
        return 0
    except JobLensError as error:
        daemon.log.error(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
