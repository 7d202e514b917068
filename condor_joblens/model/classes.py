"""The classes into which level `io` sorts calls, file systems and errors; their order is the kernel side's too."""

from __future__ import annotations

SYSCALLS: dict[str, str] = {
    "Read": "read, pread, readv, preadv2 and their kin, on any descriptor",
    "Write": "write, pwrite, writev, sendfile, splice, copy_file_range and their kin, on any descriptor",
    "Open": "open, openat, openat2, creat, close and dup",
    "Metadata": "stat, access, readlink, chmod, utime, xattr and their kin",
    "Directory": "getdents, mkdir, rename, unlink, link, chdir and their kin",
    "Sync": "fsync, fdatasync, msync, sync and their kin",
    "MemoryMap": "mmap, munmap, mprotect, brk, madvise and their kin",
    "Network": "socket, connect, accept, send, recv and their kin",
    "Process": "clone, execve, exit, wait, kill, set-id and their kin",
    "Wait": "poll, select, epoll, futex, sleep and their kin",
    "Other": "everything else, and all calls of 32-bit programs",
}
"""Class of a system call -> what is in it."""

WITH_BYTES = ("Read", "Write", "Network")
"""Classes of system calls whose result is a number of bytes."""

FILESYSTEMS: dict[str, str] = {
    "Cvmfs": "CVMFS: FUSE of subtype cvmfs2, or a site's own name for it",
    "Eos": "EOS by FUSE",
    "Xrootdfs": "XRootD by FUSE",
    "Fuse": "any other FUSE",
    "Nfs": "NFS",
    "Lustre": "Lustre",
    "Gpfs": "IBM Storage Scale (GPFS)",
    "Beegfs": "BeeGFS",
    "Ceph": "CephFS",
    "Local": "file systems on a block device: ext4, XFS, Btrfs ...",
    "Overlay": "overlayfs, as in containers",
    "Tmpfs": "tmpfs, ramfs and shared memory",
    "Pipe": "pipes and FIFOs",
    "Socket": "sockets, read and written as files",
    "Tty": "terminals",
    "Other": "everything else: /proc, /sys, eventfd ...",
}
"""Class of a file system -> what is in it."""

SERVERS: dict[str, str] = {
    "Cvmfs": "CVMFS, by FUSE: what its daemon was asked for",
    "Eos": "EOS, by FUSE",
    "Xrootdfs": "XRootD, by FUSE",
    "Fuse": "any other FUSE",
    "Nfs": "NFS of any version, by the server that was asked",
    "Ceph": "CephFS by FUSE; of the kernel's own client nothing is known",
}
"""Class of a file server -> what is in it. The classes are those of FILESYSTEMS whose requests a program can count."""

ERRNOS: tuple[str, ...] = (
    *("EPERM", "ENOENT", "EINTR", "EIO", "EAGAIN", "ENOMEM", "EACCES", "EBUSY", "EEXIST", "EXDEV", "ENODEV", "ENOTDIR"),
    *("EISDIR", "EINVAL", "ENFILE", "EMFILE", "EFBIG", "ENOSPC", "EROFS", "EPIPE", "ELOOP", "ENAMETOOLONG"),
    *("ENETUNREACH", "ECONNRESET", "ENOTCONN", "ETIMEDOUT", "ECONNREFUSED", "EHOSTUNREACH", "ESTALE", "EDQUOT"),
)
"""Errors that are counted by name; all others together are `Other`."""
