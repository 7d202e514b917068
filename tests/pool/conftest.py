"""The pools that the tests of this layer share: one for each Debian suite and process of pytest.

A test takes the fixture `pool`. It runs on the newest suite, and on HTCondor 23.9 as well if it is marked
`every_suite`: if it is about what HTCondor's versions do in ways of their own.
The environment: SUITE=trixie runs everything on that suite; POOL=main takes the pool of `make pool`. If tests are
distributed over processes (pytest -n), each has a pool of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from harness import NEWEST, OLDEST, Pool, started

pytest.register_assert_rewrite("truth")

BRISK = """
STARTER_INITIAL_UPDATE_INTERVAL = 2
STARTER_UPDATE_INTERVAL = 3
SHADOW_QUEUE_UPDATE_INTERVAL = 2
JOBLENS_AD_PERIOD = 2
JOBLENS_SLOT_AD_PERIOD = 2
JOBLENS_PRESSURE_PERIOD = 2
MASTER_JOBLENSD_BACKOFF_FACTOR = 1
MASTER_JOBLENS_EXPORT_BACKOFF_FACTOR = 1
"""
"""For tests that are not about how soon a number gets where.

condor_master waits 2 to the power of the number of a daemon's ends, in seconds, and many tests of a pool end joblensd.
"""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_suite: run on HTCondor 23.9 as well as on the newest")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "shared_pool" in metafunc.fixturenames:
        suites = [os.environ.get("SUITE") or NEWEST]
        chosen = suites != [NEWEST] or os.environ.get("POOL")
        if not chosen and metafunc.definition.get_closest_marker("every_suite"):
            suites.append(OLDEST)
        metafunc.parametrize("shared_pool", suites, indirect=True, scope="session")


@pytest.fixture(scope="session")
def shared_pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    name = os.environ.get("POOL") or f"test-{request.param}"
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    with started(f"{name}-{worker}" if worker else name, request.param) as pool:
        yield pool
        log = pool.log("JobLensdLog.old") + pool.log("JobLensdLog")
        refused = {line.split(" ", 2)[2] for line in log.splitlines() if "may not make the system call" in line}
        assert refused == set(), "a list of system calls lacks something (agent/own_calls.py, common/starter.py)"


@pytest.fixture(scope="module")
def brisk(shared_pool: Pool) -> Iterator[Pool]:
    """The running pool, in which a job's numbers reach the queue every few seconds; for the tests of one file."""
    shared_pool.make_wrappers_patient()
    with shared_pool.config(BRISK):
        yield shared_pool
        shared_pool.clean()


@pytest.fixture
def pool(shared_pool: Pool) -> Iterator[Pool]:
    """The running pool; what jobs a test leaves are removed after it."""
    shared_pool.make_wrappers_patient()
    yield shared_pool
    shared_pool.clean()
