#!/usr/bin/env python3
"""What the job wrapper adds to the start of a job: joblensd alive, dead, hung, and a chained wrapper.

A job is /bin/true, timed from its start to its end. Every variant runs once a round, in random order, so that
a noisy moment meets all of them alike; what the wrapper adds is the difference of medians within this one run.
On a busy machine the CPU time is what to look at: it doesn't count waiting for a free CPU.
The helper is static, of musl where it is installed, and has a socket of its own for each state of joblensd.

    python3 benchmarks/bench_wrapper.py [--rounds N] [--shell dash|bash]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

HOOKS = Path(__file__).resolve().parents[1] / "hooks"
JOB = "/bin/true"
COMPILER = shutil.which("musl-gcc") or "cc"  # see joblens_activate.c
NOISY = 0.35  # quartiles further apart than this part of the median


@dataclass(frozen=True)
class Variant:
    """One way to start a job; `target_ms` is what it may add to an exec alone, None for the things compared with."""

    name: str
    command: tuple[str, ...]
    target_ms: float | None = None


class Bench:
    """Builds wrappers below `folder`, which must be short: a socket's path has at most 107 bytes."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder = folder
        self.shell = folder / "sh"
        self.shell.symlink_to(shell)

    def script(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text.replace("#!/bin/sh\n", f"#!{self.shell}\n"))
        path.chmod(0o755)
        return str(path)

    def wrapper(self, name: str, chained: str = "") -> tuple[str, str]:
        """A wrapper with its helper; gives its path and that of the socket on which it asks."""
        folder = self.folder / name
        folder.mkdir()
        record, listening = folder / "chained_wrapper", folder / "activate.sock"
        if chained:
            record.write_text(f"{chained}\n")
        paths = [f'-DJOBLENS_SOCKET="{listening}"', f'-DJOBLENS_CHAIN="{record}"']
        build = [COMPILER, "-O2", "-static", *paths, f"-DJOBLENS_CHAIN_OWNER={os.getuid()}"]
        helper = str(folder / "joblens_activate")
        subprocess.run([*build, str(HOOKS / "joblens_activate.c"), "-o", helper], check=True)
        text = (HOOKS / "joblens_wrapper").read_text().replace("/etc/joblens/chained_wrapper", str(record))
        return self.script(f"{name}/joblens_wrapper", text), str(listening)


@contextmanager
def joblensd(path: str) -> Iterator[int]:
    """A process that answers "traced" on `path` at once; gives its id."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(128)
        child = os.fork()
        if child == 0:
            while True:
                connection, _ = listener.accept()
                connection.recv(4096)
                connection.send(b"joblens/1\0traced\0level=basic\0")
                connection.close()
        try:
            yield child
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def variants(bench: Bench, stack: ExitStack) -> list[Variant]:
    """Sets up every state of joblensd, for as long as `stack` is open."""
    plain = bench.script("plain", '#!/bin/sh\nexec "$@"\n')
    alive, alive_socket = bench.wrapper("alive")
    stack.enter_context(joblensd(alive_socket))
    chained, chained_socket = bench.wrapper("chained", chained=plain)
    stack.enter_context(joblensd(chained_socket))
    missing, _ = bench.wrapper("missing")
    refused, refused_socket = bench.wrapper("refused")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(refused_socket)
    stopped, stopped_socket = bench.wrapper("stopped")
    os.kill(stack.enter_context(joblensd(stopped_socket)), signal.SIGSTOP)
    helperless, _ = bench.wrapper("helperless")
    (Path(helperless).parent / "joblens_activate").unlink()
    return [
        Variant("exec alone", (JOB,)),
        Variant('a script that only says exec "$@"', (plain, JOB)),
        Variant("wrapper, joblensd alive", (alive, JOB), 3),
        Variant("the same, and that script chained", (chained, JOB)),
        Variant("wrapper, joblensd dead: no socket", (missing, JOB), 5),
        Variant("wrapper, joblensd dead: refused", (refused, JOB), 5),
        Variant("wrapper without its helper", (helperless, JOB), 5),
        Variant("wrapper, joblensd stopped by SIGSTOP", (stopped, JOB), 50),
    ]


def start(command: tuple[str, ...]) -> tuple[float, float]:
    """Milliseconds from a job's start to its end, and those of CPU that it took, its children's included."""
    began = time.perf_counter_ns()
    _, status, usage = os.wait4(os.posix_spawn(command[0], command, os.environ), 0)
    took = time.perf_counter_ns() - began
    if status != 0:
        raise SystemExit(f"{' '.join(command)}: wait status {status}")
    return took / 1e6, (usage.ru_utime + usage.ru_stime) * 1e3


def report(shell: str, starts: dict[Variant, list[tuple[float, float]]]) -> bool:
    """Prints a table; tells whether every target was met."""
    alone = statistics.median(took for took, _ in next(iter(starts.values())))
    print(f"\nmilliseconds, sh is {shell}{'median':>17}{'quartiles':>17}{'added':>8}{'ratio':>7}{'CPU':>7}  target")
    met = True
    for variant, measured in starts.items():
        low, median, high = statistics.quantiles([took for took, _ in measured], n=4)
        cpu = statistics.median(used for _, used in measured)
        added = median - alone
        verdict = ""
        if variant.target_ms is not None:
            reached = added <= variant.target_ms
            met &= reached
            verdict = f"<= {variant.target_ms:g}  {'met' if reached else 'MISSED'}"
        quartiles = f"{low:.2f} - {high:.2f}"
        print(
            f"  {variant.name:<37}{median:8.2f}{quartiles:>17}{added:8.2f}{median / alone:6.1f}x{cpu:7.2f}  {verdict}"
        )
        if high - low > NOISY * median:
            print(f"  ^ noisy: the quartiles are {(high - low) / median:.0%} of the median apart")
    return met


def measure(shell: str, rounds: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="joblens-", dir="/tmp") as folder, ExitStack() as stack:
        starts: dict[Variant, list[tuple[float, float]]] = {
            variant: [] for variant in variants(Bench(Path(folder), shell), stack)
        }
        order = list(starts)
        for _ in range(rounds):
            random.shuffle(order)
            for variant in order:
                starts[variant].append(start(variant.command))
    return report(Path(shell).name, starts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=100, help="jobs of each kind (default 100)")
    parser.add_argument("--shell", action="append", help="a shell to be sh (default: dash and bash, where installed)")
    options = parser.parse_args()
    shells = [path for path in map(shutil.which, options.shell or ["dash", "bash"]) if path]
    if not shells:
        parser.error(f"no such shell: {options.shell}")
    load = os.getloadavg()[0]
    busy = " (busy!)" if load > 1 else ""
    print(f"{options.rounds} rounds, {os.cpu_count()} CPUs, load {load:.1f}{busy}, helper built by {COMPILER}")
    return 0 if all([measure(shell, options.rounds) for shell in shells]) else 1


if __name__ == "__main__":
    sys.exit(main())
