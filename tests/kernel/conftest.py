"""Real programs in this machine's kernel: each test has a tracer and a part of the cgroup tree of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import ground as grounds
import pytest

_numbers = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def job_program() -> None:
    if os.geteuid() != 0:
        pytest.fail("these tests load programs into the kernel: run them as root")
    grounds.build_job()


@pytest.fixture
def name() -> str:
    """A name that nothing else has, for a cgroup and a folder of pins."""
    return f"joblens-test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def ground(name: str) -> Iterator[grounds.Ground]:
    with grounds.on_ground(name) as ground:
        yield ground


@pytest.fixture
def slot(ground: grounds.Ground) -> grounds.Slot:
    return ground.slot()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "disk: needs a file system with storage behind it")
