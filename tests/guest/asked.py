"""In a guest: each example of docs/ask runs about a cgroup in which known work is done, and what it says is printed.

asked.py CHECKOUT       as root; a line of JSON for each example
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup/asked")
TIMES = 7
SECONDS = 20

NEIGHBOUR = f"""
import os
for _ in range({TIMES}):
    with open("/tmp/asked", "wb") as file:
        file.write(b"a")
        file.flush()
        os.fsync(file.fileno())
    os.listdir("/tmp")
    try:
        os.rmdir("/no/such")
    except OSError:
        pass
print(os.stat("/tmp").st_ino)
"""
WORK = f"""
import os
open("{CGROUP}/cgroup.procs", "w").write(str(os.getpid()))
{NEIGHBOUR}"""


def main(checkout: str) -> None:
    """Of each example: name, the folder's inode, and the tables."""
    CGROUP.mkdir()
    subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], check=True)
    for path in sorted(Path(checkout, "docs", "ask").glob("*.c")):
        child = subprocess.Popen(
            ["/usr/bin/python3", "-I", f"{checkout}/condor_joblens/ask/with_bcc.py", CGROUP, str(SECONDS), path.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(path.read_text())
        child.stdin.close()
        said, inode = [json.loads(child.stdout.readline())], ""
        if said == [{"began": True}]:
            work = [sys.executable, "-c", WORK]
            inode = subprocess.run(work, check=True, capture_output=True, text=True).stdout.strip()
            subprocess.run([*work[:2], NEIGHBOUR], check=True, capture_output=True)
            said = [json.loads(line) for line in child.stdout]
        print(json.dumps([path.stem, inode, child.wait(), said]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
