"""What a file server is called: by the mounts that this process sees, and the site's own names."""

from __future__ import annotations

import re

import numpy as np

from condor_joblens.common.endpoint_names import Names
from condor_joblens.common.errors import printable
from condor_joblens.model.endpoints import where
from condor_joblens.model.servers import SERVER
from condor_joblens.tracer.backend_protocol import Backend
from condor_joblens.tracer.filesystems import Mounts

LONGEST = SERVER["name"].itemsize
NFS_PORT = 2049
CACHED = 4096


class ServerNames:
    """Names of the kernel's entries. A name that was found stays, also when its mount has gone."""

    def __init__(self, tracer: Backend, names: Names) -> None:
        self._tracer, self._names = tracer, names
        self._known: dict[tuple[bytes, int], bytes] = {}
        self._mounts: Mounts | None = None
        self._points: dict[int, str] = {}  # device -> mount point
        self._hosts: dict[str, str] = {}  # address -> as it stands in the mount of NFS

    def rename(self, names: Names) -> None:
        """Takes another table of the site's names."""
        self._names = names
        self._known.clear()

    def of(self, keys: np.ndarray) -> list[bytes]:
        """The names of `keys` (map_layout.SERVER_KEY, shape (n,)): printable ASCII of at most LONGEST bytes."""
        places = list(zip(keys["address"].copy().view("V16").reshape(-1).tolist(), keys["port"].tolist()))
        unknown = {place for place in places if place not in self._known}
        if unknown:
            self._find(unknown)
        return [self._known[place] for place in places]

    def _find(self, places: set[tuple[bytes, int]]) -> None:
        self._read_mounts()
        if len(self._known) + len(places) > CACHED:
            self._known.clear()
        fuse = self._tracer.fuse_mounts()
        for address, port in places:
            name = self._host(address, port) if any(address[:8]) or port else self._mount(address, fuse)
            self._known[address, port] = printable(name, LONGEST).encode("ascii", "replace")[:LONGEST]

    def _mount(self, address: bytes, fuse: dict[int, tuple[int, str]]) -> str:
        device, began = (int(part) for part in np.frombuffer(address[8:], "u4"))
        known_since, kind = fuse.get(device, (0, ""))
        if known_since != began:
            return "unmounted"
        # a mount that only its own namespace sees has its type alone
        return self._points.get(device, kind)

    def _host(self, address: bytes, port: int) -> str:
        named = self._names.find(address, port)
        plain = where(address, 0 if port == NFS_PORT else port)
        return named or self._hosts.get(where(address, 0), plain)

    def _read_mounts(self) -> None:
        if self._mounts is None:
            self._mounts = Mounts()
        elif not self._mounts.changed():
            return
        self._points, self._hosts = {}, {}
        for line in self._mounts.read().split("\n"):
            before, separator, after = line.partition(" - ")
            fields, kinds = before.split(" "), after.split(" ")
            if not separator or len(fields) < 5 or len(kinds) < 3:
                continue
            major, _, minor = fields[2].partition(":")
            device, point = int(major) << 20 | int(minor), _unescaped(fields[4])
            if device not in self._points or len(point) < len(self._points[device]):
                self._points[device] = point
            address = re.search(r"(?:^|,)addr=([^,]+)", kinds[2])
            if kinds[0] in ("nfs", "nfs4") and address:
                self._hosts[address[1]] = kinds[1].partition(":/")[0]


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)
