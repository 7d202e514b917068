"""On a site that has a job wrapper already: ours is installed, runs that one, and no job sees a difference."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from harness import SCRIPTS, Pool, started

SITE_WRAPPER = """#!/bin/sh
WRAPPED_BY_SITE=$(( ${WRAPPED_BY_SITE:-0} + 1 ))
export WRAPPED_BY_SITE
exec "$@"
"""
CONFIGURE = """
cat >/usr/local/bin/site_wrapper
chmod 755 /usr/local/bin/site_wrapper
echo 'USER_JOB_WRAPPER = /usr/local/bin/site_wrapper' >/etc/condor/config.d/10-site.conf
condor_reconfig
"""

ARGUMENTS = ["two words", "", "it's", 'a "quote"', "$HOME", "*", "back\\slash", "é"]


@pytest.fixture(scope="module")
def site() -> Iterator[Pool]:
    """A pool of its own: the wrapper must be there before the product is installed."""
    with started(f"{os.environ.get('POOL') or 'test'}-site", install=False) as pool:
        pool.run("sh", "-euc", CONFIGURE, input=SITE_WRAPPER)
        subprocess.run([SCRIPTS / "install"], env={**os.environ, "POOL": pool.name}, check=True)
        pool.make_wrappers_patient()
        yield pool


def quoted(arguments: list[str]) -> str:
    """As a submit file writes them: in the new syntax, a quote doubled in its own kind of quotes."""
    inner = " ".join("'" + argument.replace("'", "''") + "'" for argument in arguments)
    return '"' + inner.replace('"', '""') + '"'


def test_site_wrapper_is_recorded_and_ours_in_force(site: Pool) -> None:
    assert site.shell("cat /etc/joblens/chained_wrapper") == "/usr/local/bin/site_wrapper\n"
    in_force = site.run("condor_config_val", "-subsystem", "STARTER", "USER_JOB_WRAPPER").stdout.strip()
    assert in_force.endswith("/joblens_wrapper")


def test_site_wrapper_runs_once_and_arguments_arrive_as_they_are(site: Pool) -> None:
    script = "printf '%s\\n' \"$WRAPPED_BY_SITE\"; printf '%s\\0' \"$@\""
    arguments = quoted(["-c", script, "sh", *ARGUMENTS])
    cluster = site.submit(f"executable = /bin/sh\narguments = {arguments}\nqueue")
    (ad,) = site.wait_ended(cluster)
    wrapped, _, given = site.output(cluster).partition("\n")
    assert (ad["ExitCode"], wrapped) == (0, "1")
    assert given.split("\0")[:-1] == ARGUMENTS
    # counting begins after all wrappers' own work: at the exec of the site's wrapper, and the job's
    assert site.last_usage(cluster)["Process"]["Executed"] == 2


def test_job_without_arguments_and_a_signal_and_an_exit_code(site: Pool) -> None:
    """All three at once."""
    plain = site.submit("executable = /bin/pwd\nqueue")
    code = site.submit("executable = /bin/sh\narguments = \"-c 'exit 42'\"\nqueue")
    killed = site.submit("executable = /bin/sh\narguments = \"-c 'kill -9 $$'\"\nqueue")
    assert site.wait_ended(plain)[0]["ExitCode"] == 0
    assert site.wait_ended(code)[0]["ExitCode"] == 42
    (ad,) = site.wait_ended(killed)
    assert (ad["ExitBySignal"], ad["ExitSignal"]) == (True, 9)
    assert site.last_usage(killed)["Process"]["Signalled"] == 1
