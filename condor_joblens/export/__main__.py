"""joblens-export: started by condor_master from DAEMON_LIST; SIGHUP reads the configuration again, SIGTERM ends it."""

from __future__ import annotations

import sys

from condor_joblens.export import main

if __name__ == "__main__":
    sys.exit(main())
