"""The state in which every test of every layer starts, whoever calls it: nohup, cron, a CI runner, a shell with limits.

Whatever a test starts inherits this state. A test that is about one of these settings changes it for itself.
"""

from __future__ import annotations

import fnmatch
import locale
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator

import pytest

KEPT = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"),
    *("*_proxy", "*_PROXY", "*CERT*", "*CA_BUNDLE*", "PIP_*"),  # how this machine reaches package sources
    *(
        "JOBLENS_*",
        "PYTHON",
        "PYTHONPATH",
        "SUITE",
        "POOL",
        "MIRROR",
        "CGROUPS",
        "CONF",
        "GUEST_*",
        "HUB_WHOLE",
    ),  # `make test`'s own
    *("PYTEST_*", "PY_COLORS", "HYPOTHESIS_*", "CI"),
)
"""Patterns of the environment variables that tests may see. HTCondor, Git, Python and others read many more."""

ENVIRONMENT = {"LANG": "C.UTF-8", "TZ": "UTC"}

LIMITS = {
    resource.RLIMIT_AS: (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    resource.RLIMIT_CORE: (0, resource.RLIM_INFINITY),
    resource.RLIMIT_CPU: (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    resource.RLIMIT_DATA: (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    resource.RLIMIT_FSIZE: (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    resource.RLIMIT_MEMLOCK: (8 << 20, 8 << 20),
    resource.RLIMIT_NOFILE: (1 << 14, 1 << 14),
    resource.RLIMIT_NPROC: (1 << 16, 1 << 16),
    resource.RLIMIT_STACK: (8 << 20, resource.RLIM_INFINITY),
}
"""What a service gets from systemd, and enough files for a node with a thousand jobs: resource -> (soft, hard)."""


def known_signals() -> None:
    """No signal is blocked or ignored. Python keeps SIGPIPE and SIGXFSZ ignored, and subprocess restores them."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def known_limits() -> None:
    """Who may not raise a hard limit (no root, or a container) has the soft limit as near as it gets."""
    for kind, (soft, hard) in LIMITS.items():
        try:
            resource.setrlimit(kind, (soft, hard))
        except (ValueError, OSError):
            highest = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (highest if _less(highest, soft) else soft, highest))


def _less(one: int, other: int) -> bool:
    return one != resource.RLIM_INFINITY and (other == resource.RLIM_INFINITY or one < other)


def known_environment() -> None:
    """The environment of a process with nothing set, in UTF-8 and UTC."""
    for name in [name for name in os.environ if not any(fnmatch.fnmatchcase(name, kept) for kept in KEPT)]:
        del os.environ[name]
    os.environ.update(ENVIRONMENT)
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    time.tzset()
    sys.dont_write_bytecode = False


if sys.getfilesystemencoding() != "utf-8":
    raise pytest.UsageError("Python began with file names that are not UTF-8: set PYTHONUTF8=1")
known_signals()
known_limits()
os.umask(0o022)
known_environment()


@pytest.fixture(autouse=True)
def same_umask() -> Iterator[None]:
    """A test that leaves another umask behind is told so: the tests after it would fail for no reason of theirs."""
    yield
    assert os.umask(0o022) == 0o022, "this test has changed the umask of all tests after it"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the tests that are marked soak, and no others")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes seconds, and `make check` leaves it to `make test`")
    config.addinivalue_line(
        "markers", "sampled(count): `make test` runs it with so many of its parameters, `make soak` with all"
    )
    config.addinivalue_line(
        "markers", "soak: takes long or keeps the machine busy; `make test` has a small example of it"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--soak"):
        chosen = [item for item in items if item.get_closest_marker("soak") or item.get_closest_marker("sampled")]
    else:
        chosen = in_sample([item for item in items if not item.get_closest_marker("soak")])
    if len(chosen) < len(items):
        taken = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in taken])
        items[:] = chosen


def in_sample(items: list[pytest.Item]) -> list[pytest.Item]:
    """Without what is left out of tests that are marked sampled. What is taken is spread evenly, each time the same."""
    alike: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            alike.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: set[pytest.Item] = set()
    for each in alike.values():
        (count,) = each[0].get_closest_marker("sampled").args  # type: ignore[union-attr]
        left_out.update(each)
        left_out.difference_update(each[number * len(each) // count] for number in range(min(count, len(each))))
    return [item for item in items if item not in left_out]
