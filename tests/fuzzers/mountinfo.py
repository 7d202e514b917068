"""/proc/self/mountinfo: an input is the whole of it, and the path of a mount of FUSE, which a user may choose."""

from __future__ import annotations

import re

from condor_joblens.common.filesystem_classes import CLASSES
from condor_joblens.tracer.filesystems import LONGEST_PATH, MOST_MOUNTS, built_in, mount_prefixes

SEEDS = [
    b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n30 22 0:26 / /cvmfs\\040x rw - fuse.cvmfs2 cvmfs2 ro\n",
    "/home/alice/a b\\c\u2028d".encode(),
]
WORDS = [b" - ", b" fuse.sshfs ", b"\\040", b"0:26", b"\x0c", b"\xc2\x85", b"\r"]
_KNOWN = built_in()


def check(data: bytes) -> None:
    """Prefixes are bounded; a mount at any path has its class."""
    for path in mount_prefixes(data.decode("utf-8", "surrogateescape"), _KNOWN):
        assert path.endswith(b"/") and len(path) <= LONGEST_PATH
    path = b"/" + data.replace(b"\0", b"").strip(b"/")
    # as the kernel writes it (fs/proc_namespace.c, mangle)
    escaped = re.sub(rb"[ \t\n\\#]", lambda found: b"\\%03o" % found[0][0], path)
    line = b"30 22 0:26 / %b rw shared:1 - fuse.sshfs host rw\n" % escaped
    found = mount_prefixes(line.decode("utf-8", "surrogateescape"), _KNOWN)
    prefix = path.rstrip(b"/") + b"/"
    assert found == ({prefix: CLASSES.index("Fuse")} if len(prefix) <= LONGEST_PATH else {})
    assert len(found) <= MOST_MOUNTS
