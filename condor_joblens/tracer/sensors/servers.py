"""What reaches file servers, at level basic: programs on the request paths of FUSE and NFS, for whoever causes it.

Nothing else of the machine runs them. A kernel module that comes after joblensd (an automounter can load it) is met
within a round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from condor_joblens.model.classes import FILESYSTEMS, SERVERS
from condor_joblens.model.servers import REQUESTS
from condor_joblens.tracer import map_layout, module_types
from condor_joblens.tracer._bpf import ffi, lib
from condor_joblens.tracer.loader import Part
from condor_joblens.tracer.map_table import MapTable
from condor_joblens.tracer.sensors.basic import Basic, NodeSensor

FUSE_MOUNTS = 4096  # entries of jl_fuse_mounts (fuse.bpf.c)
NOT_A_SERVER = 0xFFFF
WITHOUT_REQUESTS = ("Lustre", "Gpfs", "Beegfs")
"""Classes of file systems on servers whose requests no program can count."""

DISKS = ("virtiofs",)
"""Types that are FUSE inside, and the disk of a virtual machine."""


class RequestSensor(NodeSensor):
    """Counts for all slots, into the tables of basic."""

    classes: ClassVar[frozenset[str]]
    """Of servers, in lower case, whose requests it counts."""

    @property
    def module(self) -> str:
        """The kernel module whose requests it counts."""
        return self.parts[0].module

    def is_there(self) -> bool:
        """Whether its module is loaded."""
        return module_types.is_there(self.module)


class FuseRequests(RequestSensor):
    """Requests to the daemons of FUSE, by mount."""

    name = "fuse"
    classes = frozenset(name.lower() for name in SERVERS if name != "Nfs")
    parts: ClassVar = (
        Part(
            f"{REQUESTS}FUSE",
            ("fuse", "fuse_channels", "fuse"),
            (
                ("jl_fuse_send", "jl_fuse_end"),
                ("jl_fuse_send", "jl_fuse_end"),
                ("jl_fuse_ask", "jl_fuse_ask_bg", "jl_fuse_answer"),
            ),
            module="fuse",
            tracepoints=("fuse_request_end", "fuse_request_end", ""),
        ),
    )

    def __init__(self, basic: Basic) -> None:
        super().__init__(basic)
        self._types: dict[bytes, int] = {}

    def opened(self) -> None:
        """The table of mounts, and the classes."""
        self._mounts = MapTable(self.maps["jl_fuse_mounts"], FUSE_MOUNTS, np.dtype("u4"), map_layout.FUSE_MOUNTED)
        self.refresh()

    def closed(self) -> None:
        """No mount is known any more."""
        self.__dict__.pop("_mounts", None)
        self._types = {}

    def refresh(self) -> None:
        """Classes by type: a site can add some."""
        types = classes_by_type(self._basic.filesystem_types)
        if types == self._types or self.loaded is None:
            return
        for name, number in types.items():
            if self._types.get(name) != number:
                key, value = (
                    ffi.new("char[]", name.ljust(map_layout.FUSE_TYPE_BYTES, b"\0")),
                    ffi.new("__u32 *", number),
                )
                lib.bpf_map_update_elem(self.maps["jl_fuse_types"], key, value, 0)
        self._types = types
        self._mounts.drop(self._mounts.read()[0])  # they are classified anew

    def mounts(self) -> dict[int, tuple[int, str]]:
        """Device number, as the kernel writes it (major << 20 | minor) -> its began_ms and its type."""
        if self.loaded is None:
            return {}
        keys, values = self._mounts.read()
        begins, types = values["began_ms"].tolist(), values["type"].tolist()
        return {key: (began, kind.decode("ascii", "replace")) for key, began, kind in zip(keys.tolist(), begins, types)}


class NfsRequests(RequestSensor):
    """Requests to servers of NFS, by address."""

    name = "nfs"
    classes = frozenset({"nfs"})
    # its types have all that the programs look at of sunrpc as well
    parts: ClassVar = (Part(f"{REQUESTS}NFS", ("nfs",), (("jl_nfs_begin", "jl_nfs_answer"),), module="nfs"),)


def classes_by_type(filesystem_types: Mapping[str, int]) -> dict[bytes, int]:
    """Types of file systems that have a class of servers of their own, and its number; all others are `Fuse`."""
    servers, filesystems = list(SERVERS), list(FILESYSTEMS)
    found = {name.encode(): NOT_A_SERVER for name in DISKS}
    for name, number in filesystem_types.items():
        if filesystems[number] in servers and len(name) < map_layout.FUSE_TYPE_BYTES:
            found[name.encode()] = servers.index(filesystems[number])
    return found


def unseen_filesystems(uncounted: frozenset[str]) -> frozenset[int]:
    """Places in FILESYSTEMS of those on file servers whose requests are not counted.

    `uncounted` are those of SERVERS that this kernel refuses, in lower case. The kernel's own client of Ceph is not
    told from that by FUSE, and is not among them.
    """
    return frozenset(
        place
        for place, name in enumerate(FILESYSTEMS)
        if name in WITHOUT_REQUESTS or (name in SERVERS and name.lower() in uncounted)
    )


REQUEST_SENSORS: tuple[type[RequestSensor], ...] = (FuseRequests, NfsRequests)
"""Those that there are."""
