"""Jobs whose scripts are traced: local variables of a Python, an older Python in bursts, and commands of bash."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness import CHECKOUT, Pool

HOME = "/home/alice"
WAITS = f"""
import os, sys, time
while not os.path.exists("{HOME}/go"):
    time.sleep(0.1)
"""
RAISES = f"""{WAITS}
class Talks:
    def __repr__(self):
        print("talks")
        return "x"

    __len__ = __del__ = __repr__


def load(table, name):
    password, talks = "hunter2", Talks()
    return table[name]


load({{"electrons": 1}}, "muons")
"""
BURSTS = f"""
def fit(number):
    return number + 1

{WAITS}
begun, number = time.process_time(), 0
while time.process_time() < begun + 1.5:
    number = fit(number)
print(number > 0, len(os.listdir("/proc/self/fd")), sys.getprofile())
"""
COMMANDS = f"""
until test -e {HOME}/go; do sleep 0.1; done
set -o pipefail
trap 'echo trapped "$?"' ERR
trap 'echo bye' EXIT
for name in a b; do
    grep -q "$name" <<< "a word"
done
false | true
exit 3
"""
OLD = "/opt/python3.11"


@dataclass
class Course:
    """What became of the jobs."""

    plain: dict[str, Any]  # by script: exit code, output and error of a job that asked for nothing
    same: dict[str, Any]  # and of one that was traced
    crash: str  # `joblens crash` of the one that raises
    death: str
    bursts: list[dict[str, Any]]  # `joblens trace --json` of the older Python
    commands: list[dict[str, Any]]
    log: str


def put(pool: Pool, name: str, text: str) -> None:
    (pool.root / HOME.lstrip("/") / name).write_text(text.lstrip("\n"))


def bring_older_python(pool: Pool) -> None:
    """Debian's 3.11, with its library alone: the C library is that of the pool."""
    made = subprocess.run([CHECKOUT / "tests/pythons", "3.11"], stdout=subprocess.PIPE, text=True, check=True)
    root, target = made.stdout.strip(), pool.root / OLD.lstrip("/")
    if not target.exists():
        shutil.copytree(f"{root}/usr/lib/python3.11", target / "lib/python3.11", symlinks=True)
        (target / "bin").mkdir()
        shutil.copy(f"{root}/usr/bin/python3.11", target / "bin")


def ended(pool: Pool, cluster: int) -> tuple[Any, ...]:
    (ad,) = pool.wait_ended(cluster)
    return ad.get("ExitCode"), pool.output(cluster), (pool.root / HOME.lstrip("/") / f"err.{cluster}.0").read_text()


def kept(pool: Pool, cluster: int) -> list[dict[str, Any]]:
    """What its owner sees of it; nothing if nothing is kept so far."""
    said = pool.run("joblens", "trace", f"{cluster}.0", "--json", user="alice", check=False).stdout
    found: list[dict[str, Any]] = json.loads(said or "[]")
    return found


@pytest.fixture(scope="module")
def course(brisk: Pool) -> Iterator[Course]:
    pool = brisk
    bring_older_python(pool)
    asked = {
        "raises": ("/usr/bin/python3", "python:raises+locals"),
        "bursts": (f"{OLD}/bin/python3.11", "python:calls"),
        "commands": ("/bin/bash", "bash"),
    }
    for name, text in ("raises", RAISES), ("bursts", BURSTS), ("commands", COMMANDS):
        put(pool, name, text)
    before = len(pool.log("JobLensdLog"))
    with pool.config("JOBLENS_MAX_LEVEL = trace\nJOBLENS_MAX_JOBS_TRACE = 6\nJOBLENS_MAX_JOBS_PROFILE = 8"):
        pool.run("joblens", "restart")
        pool.shell(f"rm -f {HOME}/go")
        submit = "executable = {}\ntransfer_executable = false\narguments = {}/{}\nrequest_memory = 256\n"
        jobs = {name: submit.format(program, HOME, name) for name, (program, _) in asked.items()}
        plain = {name: pool.submit(f"{job}queue") for name, job in jobs.items()}
        traced = {
            name: pool.submit(f'{job}+JobLensLevel = "trace"\n+JobLensTrace = "{asked[name][1]}"\nqueue')
            for name, job in jobs.items()
        }
        for cluster in traced.values():
            pool.until(lambda cluster=cluster: pool.usage(cluster).get("Level") == "trace", "level trace")
        pool.until(lambda: pool.usage(traced["commands"]).get("Trace", {}).get("Commands"), "commands that are traced")
        pool.shell(f"touch {HOME}/go", user="alice")
        of_plain = {name: ended(pool, cluster) for name, cluster in plain.items()}
        of_traced = {name: ended(pool, cluster) for name, cluster in traced.items()}
        crash = pool.until(
            lambda: pool.run("joblens", "crash", f"{traced['raises']}.0", user="alice", check=False).stdout,
            "the traceback",
        )
        bursts = pool.until(
            lambda: [part for part in kept(pool, traced["bursts"]) if '"fit ' in json.dumps(part["Functions"])],
            "calls of the older Python",
        )
        commands = pool.until(
            lambda: [part for part in kept(pool, traced["commands"]) if "exit 3" in str(part["Lines"])], "commands"
        )
        death = pool.last_usage(traced["raises"])["Death"]
        yield Course(of_plain, of_traced, crash, death, bursts, commands, pool.log("JobLensdLog")[before:])
    pool.run("joblens", "restart")


def test_nothing_is_seen_of_it(course: Course) -> None:
    assert course.same == course.plain
    code, out, error = course.same["raises"]
    assert (code, out) == (1, "talks\n") and error.endswith("KeyError: 'muons'\n")
    assert course.same["bursts"] == (0, "True 4 None\n", "")
    assert course.same["commands"] == (3, "trapped 1\ntrapped 1\nbye\n", "")


def test_local_variables_stand_below_a_traceback_without_secrets(course: Course) -> None:
    line = RAISES.strip().splitlines().index("    return table[name]") + 1
    assert course.death.endswith(f"exited 1: KeyError: 'muons' (raises:{line})")
    lines = [line.strip() for line in course.crash.partition("Local variables")[2].splitlines()]
    assert {"table = <dict of 1>", "name = 'muons'", "password = ***", "talks = <Talks>"} <= set(lines)
    assert "hunter2" not in course.crash


def test_an_older_python_says_what_share_of_its_time_was_seen(course: Course) -> None:
    (fit,) = (each for each in course.bursts[-1]["Functions"] if each["Function"].startswith("fit "))
    assert fit["Calls"] > 0 and 0 < fit["CoveredShare"] < 0.5


def test_commands_are_told_with_lines_and_how_they_ended(course: Course) -> None:
    told = {(each["Line"], each["Command"]): (each["Runs"], each["Failed"]) for each in course.commands[-1]["Lines"]}
    assert told[6, 'grep -q "$name"'] == (2, 1)
    assert told[9, "exit 3"] == (1, 1)


def test_joblensd_has_nothing_to_complain_of(course: Course) -> None:
    for words in ("may not make the system call", "Traceback"):
        assert words not in course.log, course.log
