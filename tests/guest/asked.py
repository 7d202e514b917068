"""In a guest: `joblens ask` about a job that a whole joblensd watches, and who and what is refused.

asked.py        as root, with tests/kernel in PYTHONPATH; prints lines of JSON:
    [times, inode]      how often the job does its work while it is asked about, and of which folder
    [question, exit code, what it printed, what it said on stderr]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ground import CHECKOUT, NODE, until
from whole_node import ALICE, SECONDS, Job, WholeNode, whole_node

TIMES = 7
ASKED_SECONDS = 20

WORK = f"""
import os
for _ in range({TIMES}):
    with open(f"/tmp/asked-{{os.getpid()}}", "wb") as file:
        file.write(b"a")
        file.flush()
        os.fsync(file.fileno())
    os.listdir("/tmp")
    try:
        os.rmdir("/no/such")
    except OSError:
        pass
"""
JOB = """
import sys
for _ in open(sys.argv[1]):
    exec(sys.argv[2])
    open("done", "a").write("x")
"""
"""It does the work once for each line of a FIFO."""

FIFO = NODE / "go"

REFUSED = {
    "a return probe": "int kretprobe__vfs_read(struct pt_regs *context) { return 0; }",
    "a hidden return probe": "#define NAMED(a, b) a##b\nint NAMED(kretprobe, __vfs_read)(void *context) { return 0; }",
    "no program": "int kprobe__vfs_read(struct pt_regs *context) { return no_such_thing; }",
}


def main() -> None:
    """Asks one question after the other."""
    subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], check=True)
    with whole_node("joblens-asked", JOBLENS_ASK="true") as node:
        os.mkfifo(FIFO)
        go = os.open(FIFO, os.O_RDWR)
        FIFO.chmod(0o644)
        job = node.start(17, "/usr/bin/python3", "-c", JOB, str(FIFO), WORK)
        until(lambda: len(node.rows(job)), SECONDS)
        print(json.dumps([TIMES, os.stat("/tmp").st_ino]), flush=True)
        for path in sorted((CHECKOUT / "docs" / "ask").glob("*.c")):
            ask_at_work(node, job, path, go)
        refuse(node)
        node.configure_anew()
        until(lambda: "JOBLENS_ASK" in node.joblens("ask", "17.0", "/dev/null").stderr, SECONDS)
        ask(node, "an example, and the knob is off", "17.0", str(CHECKOUT / "docs" / "ask" / "fsync.c"))


def ask_at_work(node: WholeNode, job: Job, path: Path, go: int) -> None:
    """Asks by an example while the job works, and then a neighbour."""
    done = job.folder / "scratch" / "done"
    before = done.stat().st_size if done.exists() else 0
    command = node.command("ask", "17.0", str(path), "--for", f"{ASKED_SECONDS}s", "--json")
    with subprocess.Popen(
        command, env=node.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as it:
        assert it.stdout is not None
        if began := it.stdout.readline():
            os.write(go, b"\n")
            until(lambda: done.exists() and done.stat().st_size > before, SECONDS)
            subprocess.run([sys.executable, "-c", WORK], check=True)
        out, err = it.communicate(timeout=SECONDS)
    os.kill(job.pid, 0)
    tell(path.stem, it.returncode, began + out, err)


def refuse(node: WholeNode) -> None:
    """Asks what is refused."""
    for name, source in REFUSED.items():
        path = NODE / "refused.c"
        path.write_text(source)
        ask(node, name, "17.0", str(path))
    example = str(CHECKOUT / "docs" / "ask" / "fsync.c")
    ask(node, "an example about no job", "18.0", example)
    ask(node, "no file", "17.0", str(NODE / "no_such.c"))
    ask(node, "an example, as no root", "17.0", example, user=ALICE)


def ask(node: WholeNode, name: str, *arguments: str, user: int = 0) -> None:
    """Asks, and tells what is answered."""
    command = node.command("ask", *arguments, user=user)
    ended = subprocess.run(command, env=node.environment, capture_output=True, text=True, timeout=SECONDS)
    tell(name, ended.returncode, ended.stdout, ended.stderr)


def tell(name: str, code: int, out: str, err: str) -> None:
    """A line for the test."""
    print(json.dumps([name, code, out, err]), flush=True)


if __name__ == "__main__":
    main()
