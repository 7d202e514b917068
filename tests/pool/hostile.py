"""Jobs that mean no good: hostile.py WHAT, each a function below. What went wrong for them goes to standard output."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

SOCKET = "/run/joblens/activate.sock"
ACTIVATE = b"joblens/1\0activate\0"


def connect() -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(10)
    connection.connect(SOCKET)
    return connection


def ask(message: bytes) -> str:
    """The answer to one packet, as text with | for NUL; in words where there is none."""
    try:
        with connect() as connection:
            connection.send(message)
            return connection.recv(4096).replace(b"\0", b"|").decode("utf-8", "replace") or "closed"
    except OSError as error:
        return type(error).__name__


def work() -> None:
    for _ in range(10):
        subprocess.run(["/bin/true"], check=True)
    time.sleep(600)


def inner_slot(name: str) -> None:
    """Moves into a cgroup of its own that is called like a slot's, beside the one that it was started in."""
    own = Path("/proc/self/cgroup").read_text().splitlines()[-1].partition("::")[2]
    cgroup = Path("/sys/fs/cgroup", *Path(own).parts[1:3], name)  # HTCondor's base, and the slot's below it
    cgroup.mkdir()
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    work()


def replaced_ad(how: str) -> None:
    """Another job's name where the node's daemons look for its own."""
    folder = Path(os.environ["_CONDOR_SCRATCH_DIR"])
    for name in (".job.ad", ".machine.ad", ".update.ad"):
        path = folder / name
        if path.exists():
            path.rename(folder / f"old{name}")
        if how == "link":
            path.symlink_to("/etc/shadow")
        elif how == "fifo":
            os.mkfifo(path)
        elif how == "gigabyte":
            with path.open("wb") as file:
                file.truncate(1 << 30)
        else:
            path.write_text('GlobalJobId = "forged#1.0#1"\nClusterId = 1\nProcId = 0\nOwner = "bob"\n')
    work()


def late() -> None:
    """Asks for its counters to be begun anew, after it has done something."""
    for _ in range(10):
        subprocess.run(["/bin/true"], check=True)
    print(ask(ACTIVATE), flush=True)
    time.sleep(600)


def elsewhere() -> None:
    """Says that it starts in another slot."""
    print(ask(ACTIVATE + b"slot=slot1_15\0scratch=/var/lib/condor/execute/dir_1\0"), flush=True)
    time.sleep(600)


def talker() -> None:
    """Everything but a request."""
    print(ask(b""), flush=True)
    for fields in (b"\0", b"garbage", b"joblens/9\0activate\0", b"joblens/1\0", b"joblens/1\0dance\0"):
        print(ask(fields), flush=True)
    for large in (b"\xff" * 4096, b"x" * 1_000_000):
        print(ask(large), flush=True)


def flood(count: int) -> None:
    """So many connections that say nothing, the oldest given up for new ones, until the file `stop` is there."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 100), hard))
    made, connections = 0, []
    while not os.path.exists("/home/bob/stop"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            connection.connect(SOCKET)
        except OSError:
            connection.close()
            time.sleep(0.01)
            continue
        connections.append(connection)
        made += 1
        if made == count:
            Path("/home/bob/flooding").write_text(str(made))
        if len(connections) > min(hard, count) - 100:
            connections.pop(0).close()


def main() -> None:
    what, *arguments = sys.argv[1:]
    if what == "replaced_ad":
        replaced_ad(arguments[0])
    elif what == "inner_slot":
        inner_slot(arguments[0])
    elif what == "flood":
        flood(int(arguments[0]))
    else:
        {"late": late, "elsewhere": elsewhere, "talker": talker}[what]()


main()
