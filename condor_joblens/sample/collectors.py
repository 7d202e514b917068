"""The collectors of a node, in the order in which they read."""

from __future__ import annotations

import numpy as np

from condor_joblens.sample.cgroup_cpu import CgroupCpu
from condor_joblens.sample.cgroup_memory import CgroupMemory
from condor_joblens.sample.collector import Collector, SampledNode
from condor_joblens.sample.endpoint_counters import EndpointCounters
from condor_joblens.sample.io_counters import IoCounters
from condor_joblens.sample.kernel_counters import KernelCounters
from condor_joblens.sample.memory_growth import MemoryGrowth
from condor_joblens.sample.profile_counters import ProfileCounters
from condor_joblens.sample.progress import Progress
from condor_joblens.sample.server_counters import ServerCounters


class Collectors:
    """All collectors of a node, and which of them fail.

    The order counts. Endpoints and servers come after the kernel's totals, of which they list shares. The cgroup's
    files come after all counters: an exiting process has left its CPU by then and is accounted for. Memory growth comes
    after the memory, and progress after all that it is seen by.
    """

    def __init__(self, node: SampledNode) -> None:
        self.kernel = KernelCounters(node)
        self.endpoints = EndpointCounters(node, self.kernel)
        self.servers = ServerCounters(node, self.kernel)
        self.io = IoCounters(node, self.kernel)
        self.profile = ProfileCounters(node)
        self.cgroup_memory = CgroupMemory(node)
        self.all: list[Collector] = [
            self.kernel,
            self.endpoints,
            self.servers,
            self.io,
            self.profile,
            CgroupCpu(node),
            self.cgroup_memory,
            MemoryGrowth(node, self.cgroup_memory),
            Progress(node),
        ]
        self.failing: dict[str, dict[int, np.void]] = {}
        """Name of a collector -> runs whose numbers of it are absent since it failed -> their rows before that."""
        self.broken: dict[str, frozenset[int]] = {}
        """Name of a collector -> runs of the last round, if it failed for all of them."""

    def forget(self, run: int) -> None:
        """The run has ended."""
        for collector in self.all:
            collector.forget(run)
        for runs in self.failing.values():
            runs.pop(run, None)
