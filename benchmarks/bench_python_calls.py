#!/usr/bin/env python3
"""What recording the calls of a Python costs it (`python:calls`), beside viztracer, on two programs of pyperformance.

Each program runs by itself, in turn without anything, with all calls recorded, with those of files that it does not
call, with the first calls of each function (`+limited`), with two arguments of one of its functions, and under
viztracer, which records into its own ring and writes nothing. With a Python before 3.12 it runs without anything and
recorded in bursts. CPU time of the program's loop counts, the least of some runs of it, or with bursts the mean. So
neither the Python's start nor what joblensd does with the ring is in it. All comes from PyPI.

    bench_python_calls.py [--rounds N] [--python PYTHON]         a Python of 3.12 or newer; after `make build`
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT / each) for each in (".", "tests/kernel", "tests/unit", "benchmarks")]

from hooked_python import build  # noqa: E402
from results import Section, verdict  # noqa: E402
from test_python_calls import Giver  # noqa: E402

PACKAGES = ("pyperformance", "viztracer")
PYTHONS = ("python3.14", "python3.13", "python3.12")
OLD_PYTHONS = ("/usr/bin/python3.11", "python3.11", "python3.10", "python3.9")

LOOP = """
import importlib.util
import sys
import time

folder, name, way, seconds = sys.argv[1:]
spec = importlib.util.spec_from_file_location("program", f"{folder}/bm_{name}/run_benchmark.py")
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)
if name == "richards":
    run = lambda: program.Richards().run(1)
else:
    run = lambda: program.bench_raytrace(1, 60, 60, None)
run()
tracer = None
if way == "viztracer":
    import viztracer
    tracer = viztracer.VizTracer(verbose=0)
    tracer.start()
times = []
while len(times) < 5 or sum(times) < float(seconds):
    began = time.process_time()
    run()
    times.append(time.process_time() - began)
if tracer is not None:
    tracer.stop()
print(sum(times) / len(times) if float(seconds) else min(times))
"""
"""The first run makes the interpreter specialise its code, and switches off what is not recorded."""


@dataclass(frozen=True)
class Program:
    """One of pyperformance's."""

    name: str
    function: str  # FUNCTION,ARGUMENT,ARGUMENT: that is called often


PROGRAMS = (Program("richards", "findtcb,self,id"), Program("raytrace", "Vector.dot,self,other"))


@dataclass(frozen=True)
class Way:
    """How a program runs."""

    name: str
    files: tuple[str, ...] = ()
    has_hook: bool = True
    has_arguments: bool = False
    is_limited: bool = False
    least: int = 1000  # calls that are recorded


WAYS = (
    Way("alone", has_hook=False),
    Way("all calls"),
    Way("files that are not its own", ("none/*",), least=0),
    Way("limited", is_limited=True),
    Way("two arguments of one function", has_arguments=True),
    Way("viztracer", has_hook=False),
)
BURSTS_SECONDS = 4.0
"""In which there are some bursts; then the mean of all runs counts."""

OLD_WAYS = (Way("alone", has_hook=False, least=1), Way("in bursts", least=1))
MOST = {"all calls": 2.5, "files that are not its own": 1.1, "limited": 1.1, "in bursts": 1.05}
"""Times as long as alone."""


def installed(python: str, folder: Path) -> Path:
    """A Python of this version that has the packages."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return folder / "bin/python"


def is_there(python: str) -> bool:
    try:
        return subprocess.run([python, "-c", "import sys, venv"], capture_output=True).returncode == 0
    except OSError:
        return False


def version(python: str) -> str:
    """`3.12.1`; empty if there is none."""
    if not python:
        return ""
    return subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


def seconds(python: Path, way: Way, program: Program, folder: Path) -> float:
    """Of one run of the loop."""
    environment: dict[str, str] = {"PYTHONPATH": str(folder / "hook")} if way.has_hook else {}
    command = [str(python), str(folder / "loop.py"), str(folder / "programs"), program.name, way.name]
    command.append(str(BURSTS_SECONDS if way in OLD_WAYS else 0.0))
    if not way.has_hook:
        return said(command, environment)
    arguments = [program.function] if way.has_arguments else ()
    with Giver(folder, way.files, arguments=arguments, is_limited=way.is_limited) as giver:
        found = said(command, environment)
        calls = sum(each.counts["Calls"] for each in giver.read().functions)
    (folder / "s").unlink()
    assert calls >= way.least and not (calls and way.files), f"{way.name}: {calls} calls were recorded"
    return found


def said(command: list[str], environment: Mapping[str, str]) -> float:
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def compare(section: Section, name: str, ways: Sequence[Way], found: Mapping[str, list[float]]) -> None:
    """A line for each way, by the rounds: each has all of them beside each other."""
    section.add(f"{name}: alone", 1000 * statistics.median(found["alone"]), "ms")
    for way in ways[1:]:
        times = [mine / alone for mine, alone in zip(found[way.name], found["alone"])]
        lower, median, upper = statistics.quantiles(times, n=4)
        note = f"half of the rounds lie between {lower:.3g} and {upper:.3g}"
        section.add(f"{name}: {way.name}", median, "times as long", MOST.get(way.name), note=note)
    if "viztracer" not in found:
        return
    against = statistics.median(mine / other for mine, other in zip(found["all calls"], found["viztracer"]))
    section.add(f"{name}: all calls, beside viztracer", against, "times as long", 1.0)


def measure(
    section: Section, python: Path, ways: Sequence[Way], program: Program, folder: Path, rounds: int, where: str = ""
) -> None:
    """A program in all these ways, in turn."""
    found: dict[str, list[float]] = {way.name: [] for way in ways}
    for number in range(rounds):
        for way in ways if number % 2 else ways[::-1]:
            found[way.name].append(seconds(python, way, program, folder))
    compare(section, program.name + where, ways, found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15, help="of each way (15)")
    parser.add_argument("--python", help=f"the first that is there of {', '.join(PYTHONS)}")
    parser.add_argument("--old-python", help=f"the first that is there of {', '.join(OLD_PYTHONS)}")
    options = parser.parse_args()
    python = options.python or next(filter(is_there, PYTHONS), "")
    old = options.old_python or next(filter(is_there, OLD_PYTHONS), "")
    section = Section(
        "python_calls",
        "Calls of a Python",
        f"Two programs of pyperformance with Python {version(python)} and {version(old)}, in turn in each of these "
        f"ways, {options.rounds} times. CPU time of the program's loop, without the start; the median of the rounds' "
        f"quotients. Bursts: the mean of {BURSTS_SECONDS:.0f} s.",
    )
    if not python:
        section.add("a Python of 3.12 or newer", None, "times as long")
        return verdict([])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = installed(python, folder / "python")
        others = installed(old, folder / "old") if old else None
        if others is None:
            section.add("a Python before 3.12", None, "times as long")
        (programs,) = (folder / "python").glob("lib/python3.*/site-packages/pyperformance/data-files/benchmarks")
        (folder / "programs").symlink_to(programs)
        (folder / "loop.py").write_text(LOOP)
        build(folder / "hook", f"{folder}/s", calls=True)
        for program in PROGRAMS:
            measure(section, own, WAYS, program, folder, options.rounds)
            if others is not None:
                measure(section, others, OLD_WAYS, program, folder, options.rounds, f" with {version(old)}")
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
