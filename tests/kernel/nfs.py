"""A folder over NFS and back: server and client are this machine's kernel, and the server's own files set it up.

What nfs-utils would do with its daemons is to answer the server's questions (who is that, what is exported); here they
are answered before they are asked (Documentation/filesystems/nfs/rpc-cache.rst, fs/nfsd/nfsctl.c, fs/nfsd/export.c).
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

SETTINGS = Path("/proc/fs/nfsd")
CACHES = Path("/proc/net/rpc")
FOR_EVER = (1 << 31) - 1  # the time at which a cache's entry ends
# include/uapi/linux/nfsd/export.h
INSECURE_PORT, ASYNC, NO_SUBTREE_CHECK, FSID = 0x2, 0x10, 0x400, 0x2000


def is_there() -> bool:
    """Whether this kernel has both parts, as modules that are loaded or built in."""
    known = Path("/proc/filesystems").read_text().split()
    return "nfs4" in known and "nfsd" in known


@contextlib.contextmanager
def shared(folder: Path, where: Path) -> Iterator[None]:
    """What is in `folder` is in `where` as well, by NFS 4.1 over loopback."""
    subprocess.run(["mount", "-t", "nfsd", "nfsd", SETTINGS], check=True)
    try:
        _serve(folder)
        options = "addr=127.0.0.1,clientaddr=127.0.0.1,vers=4.1"
        # not by mount.nfs4, which need not be there
        subprocess.run(["mount", "-i", "-t", "nfs4", "-o", options, "127.0.0.1:/", where], check=True, timeout=60)
        try:
            (where / "first").touch()  # its open waits for the end of the grace period
            (where / "first").unlink()
            yield
        finally:
            subprocess.run(["umount", where], check=True)
    finally:
        _tell(SETTINGS / "threads", "0")
        subprocess.run(["umount", SETTINGS], check=True)


def _serve(folder: Path) -> None:
    for version in ("-2", "-3"):  # these want rpcbind
        with contextlib.suppress(OSError):
            _tell(SETTINGS / "versions", version)
    _tell(SETTINGS / "nfsv4gracetime", "10")
    _tell(SETTINGS / "portlist", "tcp 2049")
    _tell(SETTINGS / "threads", "2")
    flags = INSECURE_PORT | ASYNC | NO_SUBTREE_CHECK | FSID
    for cache, answer in (
        ("auth.unix.ip", f"nfsd 127.0.0.1 {FOR_EVER} guest"),
        ("nfsd.export", f"guest {folder} {FOR_EVER} {flags} 65534 65534 0"),
        ("nfsd.fh", rf"guest 1 \x00000000 {FOR_EVER} {folder}"),
    ):
        _tell(CACHES / cache / "channel", answer)
    # Nobody was here before who could want his files back. Newer kernels refuse it where no daemon remembers clients.
    with contextlib.suppress(OSError):
        _tell(SETTINGS / "v4_end_grace", "Y")


def _tell(file: Path, line: str) -> None:
    with file.open("wb", buffering=0) as channel:  # a buffer would be written once more after an error
        channel.write(line.encode() + b"\n")
