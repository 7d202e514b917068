#!/usr/bin/env python3
"""What it takes to resolve 1,000 addresses to functions, and to lines of source.

The addresses are spread over the code of real files: libc, libstdc++, the one that has Python's interpreter, and a C++
program with DWARF. Names are made as in the reader of samples, its process that demangles included. Cold is a process
that knows none of these files, though the kernel has them in its page cache; warm asks for the same once more. Lines
are read as `joblens hot` does, in a process of its own that starts addr2line. Each round is new processes.

    bench_symbols.py [--rounds N]          after `make build`
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks")]

from results import Section, verdict  # noqa: E402

ADDRESSES = 1000
MOST_COLD, MOST_WARM = 30, 3  # milliseconds
MOST_MEMORY, MOST_WITH_LINES = 25, 64  # MiB
LIBRARIES = ("libc.so.6", "libstdc++.so.6")
PROGRAM = """
#include <cstdio>
#include <map>
#include <regex>
#include <string>
int main(int count, char **words)
{
	std::map<std::string, int> seen;
	for (int i = 0; i < count; i++)
		if (std::regex_search(words[i], std::regex("a+b|c")))
			seen[words[i]]++;
	for (auto &[word, times] : seen)
		std::printf("%s %d\\n", word.c_str(), times);
}
"""
LINES = "condor_joblens.profiling.source_lines"


@dataclass(frozen=True)
class Opened:
    """samples.OpenFiles of one file."""

    number: int

    def descriptor(self, _file: object) -> int:
        """For reading."""
        return self.number

    def symbols(self, _file: object) -> None:
        """No file beside it is known."""


def program(folder: str) -> str:
    """A C++ program with DWARF."""
    path, source = f"{folder}/program", Path(folder, "program.cc")
    source.write_text(PROGRAM)
    subprocess.run(["g++", "-std=c++17", "-O1", "-g", "-Wl,--build-id", "-o", path, source], check=True)
    return path


def libraries() -> list[str]:
    """Those that this very process has loaded, and what its interpreter is in."""
    import condor_joblens.profiling.demangle as demangle

    demangle.warm_up()  # loads libstdc++
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    found = [path for name in LIBRARIES for path in mapped if os.path.basename(path).startswith(name)]
    return [*found, next((path for path in mapped if "/libpython3" in path), os.path.realpath(sys.executable))]


def asked(paths: list[str]) -> list[dict[str, Any]]:
    """Offsets of all files together, as many of each, evenly spread over what can be unwound of its code."""
    from condor_joblens.profiling.elf import Elf

    found = []
    for path in paths:
        with open(path, "rb") as file:
            elf = Elf.unmapped(file.fileno())
            rows, count = elf.rows, ADDRESSES // len(paths)
            spread = [rows[len(rows) * number // count] >> 32 for number in range(count)]
            found.append({"path": path, "build_id": elf.build_id, "offsets": sorted(set(spread))})
    return found


def memory(pid: int | str, name: str) -> float:
    """A field of /proc/PID/status, in MiB."""
    words = Path(f"/proc/{pid}/status").read_text().split()
    return int(words[words.index(f"{name}:") + 1]) / 1024


def resolve() -> dict[str, float]:
    """In a process of its own: what it takes with nothing known, and then with everything."""
    from condor_joblens.profiling import sample_reader
    from condor_joblens.profiling.demangle_process import DemangleProcess
    from condor_joblens.profiling.names import Finisher, Names
    from condor_joblens.profiling.samples import FileKey, MappedFile

    files, demangles = json.load(sys.stdin), DemangleProcess()
    Finisher(demangles)  # as the reader does before it is confined
    assert sample_reader.__name__ in sys.modules  # what else the reader has in memory
    before = {name: memory("self", name) for name in ("VmRSS", "RssAnon")}
    names, found = Names(demangles), {}
    opened = [(MappedFile(FileKey(0, 0, number, 0), file["path"]), file) for number, file in enumerate(files)]
    descriptors = [Opened(os.open(file["path"], os.O_RDONLY)) for file in files]
    for way in ("cold", "warm"):
        began = time.perf_counter()
        known = [names.of(1, mapped, file["offsets"], one) for (mapped, file), one in zip(opened, descriptors)]
        found[way] = 1e3 * (time.perf_counter() - began)
    every = [name for each in known for name, _ in each.values()]
    found["addresses"], found["named"] = len(every), sum("+0x" not in name for name in every)
    found["demangled"] = sum("(" in name for name in every)
    for name, value in before.items():
        found[name], found[f"{name} more"] = memory("self", name), memory("self", name) - value
    found["peak"] = memory("self", "VmHWM")
    found["keeper"] = memory(demangles.keeper, "RssAnon")
    return found


def lines(files: list[dict[str, Any]]) -> dict[str, float]:
    """In a process of its own, which has nothing else to do: what addr2line and what starts it take."""
    command = [sys.executable, "-m", LINES]
    request = json.dumps({"uid": os.getuid() or 65534, "gid": os.getgid() or 65534, "files": files}).encode()
    began = time.perf_counter()
    done = subprocess.run(command, input=request, stdout=subprocess.PIPE, check=True, cwd=CHECKOUT)
    took = 1e3 * (time.perf_counter() - began)
    answer = json.loads(done.stdout)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # of the largest: it or an addr2line
    return {"took": took, "peak": peak, "lines": sum(map(len, answer["lines"]))}


def part(name: str, files: list[dict[str, Any]]) -> dict[str, float]:
    """What a part found in a new process."""
    command = [sys.executable, __file__, "--part", name]
    done = subprocess.run(command, input=json.dumps(files).encode(), stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(rounds: int, section: Section) -> None:
    """All rounds, and their medians."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        files = asked([*libraries(), program(folder)])
        names = [part("names", files) for _ in range(rounds)]
        with_lines = [part("lines", files) for _ in range(rounds)]

    def median(found: list[dict[str, float]], what: str) -> float:
        return statistics.median(each[what] for each in found)

    named = f"{names[0]['named']:g} of {names[0]['addresses']:g} have a symbol, {names[0]['demangled']:g} are demangled"
    section.add("names, cold", median(names, "cold"), "ms", MOST_COLD, named)
    section.add("names, warm", median(names, "warm"), "ms", MOST_WARM)
    why = "resident; what is not its own are pages of files that joblensd has as well"
    section.add("the process that makes names", median(names, "VmRSS"), "MiB", MOST_MEMORY, why)
    section.add(
        "of it no file's (RssAnon)", median(names, "RssAnon"), "MiB", None, "some of it shared with its children"
    )
    section.add("of it for all these names and tables", median(names, "VmRSS more"), "MiB")
    section.add("its peak", median(names, "peak"), "MiB")
    section.add("the process that demangles, its own memory", median(names, "keeper"), "MiB")
    note = f"{with_lines[0]['lines']:g} lines; starting Python included"
    section.add("lines, all files", median(with_lines, "took"), "ms", None, note)
    section.add("lines: peak of the largest process", median(with_lines, "peak"), "MiB", MOST_WITH_LINES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9, help="new processes for each (9)")
    parser.add_argument("--part", choices=["names", "lines"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(resolve() if options.part == "names" else lines(json.load(sys.stdin))))
        return 0
    section = Section(
        "symbols",
        "Addresses to names and lines",
        f"{ADDRESSES:,} addresses, spread over libc, libstdc++, Python's interpreter and a C++ program with DWARF. "
        "Cold is a process that knows none of these files; the kernel has them in its page cache.",
    )
    measure(options.rounds, section)
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
