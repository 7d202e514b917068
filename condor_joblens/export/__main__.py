"""joblens-export: started by condor_master from DAEMON_LIST; SIGHUP reads the configuration again, SIGTERM ends it."""

from __future__ import annotations

import os
import sys

from condor_joblens.export import main

if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # a sink that hangs must not keep the process: what it had is in the spool
    os._exit(code)
