"""Two machines to try commands from afar and entries in: an access point with a relay server, and a node behind NAT.

It stays until Ctrl-C. `make pool-site` starts it, POOL says how its two pools are called (site: site-ap and site-node).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import NEWEST, OLDEST, SCRIPTS, Pool
from two_nodes import CONTROL, HUB, Site, whole_site

ROLES = "operator olga\nmanager mona physics\n"
KNOBS = "JOBLENS_MAX_LEVEL = trace\n"
GROUP = "accounting_group = physics\n"
"""Of alice's job."""

WORDS = """
A site of two machines runs. {ap} is the access point, with relay server, door and relay; {node} is behind NAT: nobody
can connect to it. Alice's job {job} writes a line a second there. From another terminal, as root:

    run="tests/pool/run --pool {ap}"
    $run --as alice condor_q -all
    $run --as alice joblens ps {job}                # also top ls head tail cat get log env stacks hang node jobs
    $run --as alice joblens tail -f {job}
    $run --as alice joblens kill {job} -USR1
    $run --as bob joblens ps {job}                  # who is not its user is refused

Olga is an operator, Mona the manager of the accounting group physics, which alice's job is in, and root the
administrator. Mona can only raise. Alice can't lift what Olga says of her jobs:

    control="joblens control --socket {control}"
    $run --as mona $control add --group physics --at-least io --for 10m --reason 'the group reads too slowly'
    $run --as alice joblens level {job} off
    $run --as mona $control add --group physics --at-most basic --for 10m --reason 'this is refused'
    $run --as olga $control add --user alice --exactly basic --for 10m --reason 'a benchmark'
    $run --as alice joblens level {job} io
    $run $control preview --group physics --at-least io --for 10m --reason 'what would that be for?'
    $run --as olga $control list                    # and end ENTRY

What each step left behind: $run tail /var/log/condor/JobLensDoorLog /tmp/hub.log, and on the node
tests/pool/run --pool {node} tail /var/log/condor/JobLensdLog. Ctrl-C ends both machines.
"""


def people(pool: Pool) -> None:
    """Those that a pool does not have."""
    for name in ("olga", "mona"):
        pool.run("useradd", "--create-home", name)


def refuse_to_take_over(name: str) -> None:
    """A site is made from nothing, and where its pools run already somebody else may be in it."""
    for pool in (f"{name}-ap", f"{name}-node"):
        if subprocess.run([SCRIPTS / "run", "--pool", pool, "true"], capture_output=True).returncode == 0:
            sys.exit(f"the pool {pool} runs already: end its site first, or name another by POOL=NAME make pool-site")


def tell(site: Site) -> None:
    names = {"ap": site.access_point.name, "node": site.node.name}
    print(WORDS.format(**names, job=f"{site.cluster}.0", control=CONTROL), flush=True)


def main() -> None:
    name = os.environ.get("POOL") or "site"
    suite = OLDEST if os.environ.get("SUITE") == OLDEST else NEWEST
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what is in the background without it
    refuse_to_take_over(name)
    with (
        tempfile.TemporaryDirectory(prefix="joblens-site-") as folder,
        whole_site(name, suite, Path(folder), HUB, ROLES, KNOBS, GROUP) as site,
    ):
        people(site.access_point)
        tell(site)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
        print("\nEnding both machines", flush=True)


if __name__ == "__main__":
    main()
