"""Calls that fail, at level basic: by programs at the end of the kernel's own functions (fexit), where it has them.

Many kernels have none, and then failing calls are known at level io alone. So what is refused is no part that is
missing: `joblens doctor` says which it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from condor_joblens.model.failures import Failures
from condor_joblens.tracer import failed_calls, map_layout
from condor_joblens.tracer._bpf import ffi, lib
from condor_joblens.tracer.loader import Part
from condor_joblens.tracer.sensors.basic import NodeSensor

FTRACE = Path("/proc/sys/kernel/ftrace_enabled")


class Failing(NodeSensor):
    """The last failures of processes in all slots that can be why they end: of opens, of execs, and of mmap."""

    name = "failing"
    parts: ClassVar = (
        Part(
            "failing opens",
            ("failing",),
            (("jl_open_end", "jl_exec_after"), ("jl_file_open", "jl_exec_after")),  # the second one: Linux 7.2
            needed=True,
        ),
        Part("failing mmap", ("failing",), (("jl_map_end",),)),
    )

    def is_there(self) -> bool:
        """Whether the kernel has hooks in its functions: else nothing need be tried."""
        return FTRACE.exists()

    def sizes(self) -> dict[str, int]:
        """Entries of its table: as many processes of a slot as basic keeps with their connections."""
        return {"jl_failed_calls": map_layout.FAILING_CONNECTORS * self._basic.max_slots}

    def failures(self, slot: int, tgid: int) -> Failures | None:
        """What failed for a process of the slot that has ended, once; None if nothing is known."""
        if not self.is_attached or not tgid:
            return None
        key, value = self._place(slot, tgid), np.zeros(1, map_layout.FAILED_CALLS)
        table = self.maps["jl_failed_calls"]
        if lib.bpf_map_lookup_elem(table, key, ffi.from_buffer(value)) != 0 or int(value["tgid"][0]) != tgid:
            return None
        lib.bpf_map_delete_elem(table, key)
        return failed_calls.read_told(value)

    def forget_failures(self, slot: int) -> None:
        """The slot is nobody's from now on."""
        if self.is_attached:
            for place in range(map_layout.FAILING_CONNECTORS):
                lib.bpf_map_delete_elem(self.maps["jl_failed_calls"], self._place(slot, place))

    @staticmethod
    def _place(slot: int, tgid: int) -> Any:
        many = map_layout.FAILING_CONNECTORS
        return ffi.new("__u32 *", slot * many + tgid % many)
