"""`joblens ask ID FILE.c`: a BPF program of root's own, which bcc compiles, runs about one job, for a short time."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from condor_joblens.cli.runs import run_dir
from condor_joblens.common import redact
from condor_joblens.common.errors import JobLensError, UsageError, printable
from condor_joblens.control import SOCKET, client

CHILD = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "ask", "with_bcc.py")
PYTHONS = (sys.executable, "/usr/bin/python3")
"""Of which one may have bcc: it is a package of the distribution, for its own Python."""

MOST_BYTES = 1 << 20
NICER = 10

_RETURN_PROBE = re.compile(r"\b(?:kretprobe__|kretfunc__|KRETFUNC_PROBE|KRETPROBE)\w*")
_ACT = re.compile(r"\b(?:kmod_ret__|KMOD_RET|lsm__|LSM_PROBE|bpf_(?:send_signal|probe_write_user|override_return))\w*")
_WIDEST = 60


def run(options: argparse.Namespace) -> int:
    """Prints what the program sends, and what its tables have in the end; exit code 0."""
    if os.geteuid() != 0:
        raise JobLensError("only root may put a program into the kernel: run it as root, on the job's node")
    source = _read(options.file)
    check(source)
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    cgroup = client.ask(path, "ask", {"job": options.id}).get("cgroup", "")
    command = [_python(), "-I", CHILD, cgroup, str(options.seconds), os.path.basename(options.file)]
    with _started(command, source) as child:
        assert child.stdout is not None
        for line in child.stdout:
            _print(json.loads(line), options.json)
        if code := child.wait():
            raise JobLensError(f"what compiles and runs the program ended with {code}, and does not say why")
    return 0


def check(source: str) -> None:
    """Raises UsageError for a program that a job would feel otherwise than by its time."""
    if found := _RETURN_PROBE.search(source):
        raise UsageError(f"{found[0]} is a return probe, and none is taken: a tracepoint sys_exit_... tells the same")
    if found := _ACT.search(source):
        raise UsageError(f"{found[0]} does something to who is looked at: a question only looks")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            source = file.read(MOST_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise JobLensError(f"{printable(path, 200)} can't be read: {error}") from None
    if len(source) > MOST_BYTES:
        raise JobLensError(f"{printable(path, 200)} has more than {MOST_BYTES >> 20} MiB: is it a program in C?")
    return source


def _python() -> str:
    """The Python that has bcc. Raises JobLensError."""
    for python in dict.fromkeys(PYTHONS):
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-I", "-c", "import bcc; bcc.BPF"], capture_output=True).returncode == 0:
                return python
    raise JobLensError("no Python here has bcc: install python3-bpfcc (Debian) or python3-bcc (Enterprise Linux)")


@contextlib.contextmanager
def _started(command: list[str], source: str) -> Iterator[subprocess.Popen[str]]:
    """What compiles and runs the source; it is gone afterwards, and its programs with it."""
    nice = ["nice", "-n", str(NICER), *command]
    # bcc goes to the kernel's headers and back: it fails in a folder that is gone
    child = subprocess.Popen(nice, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(source)
            child.stdin.close()
        yield child
    finally:
        child.kill()
        child.wait()


def _print(said: dict[str, Any], as_json: bool) -> None:
    """Raises JobLensError with what the child says of its failure."""
    if "failed" in said:
        raise JobLensError(f"bcc: {redact.printable(str(said['failed']))}")
    if as_json:
        print(json.dumps(said), flush=True)
    elif "note" in said:
        print(f"joblens: {said['note']}", file=sys.stderr, flush=True)
    elif "event" in said:
        print(words(said["fields"]), flush=True)
    elif "table" in said:
        print("\n".join(page(said)), flush=True)


def page(table: dict[str, Any]) -> list[str]:
    """The lines of a table for a person."""
    rows = table["rows"]
    lines = ["", redact.printable(f"{table['table']}:")]
    if table["log2"]:
        rows = [[f"{1 << key - 1 if key else 0} to {(1 << key) - 1}", value] for key, value in rows]
    cells = [(words(key), words(value)) for key, value in rows]
    width = min(_WIDEST, max((len(key) for key, _ in cells), default=0))
    lines += [f"  {key:{width}}  {value}" for key, value in cells]
    return [*lines, f"  and {table['left_out']} more"] if table["left_out"] else lines


def words(value: Any) -> str:
    """A value, or the fields of one, in a line that is fit to print."""
    if isinstance(value, dict):
        return "  ".join(f"{redact.printable(str(name))}={words(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ",".join(map(words, value))
    return redact.printable(str(value))
