"""joblensd's state by group. Each group's functions take their own group, which holds those below it:

    requests and lifecycle (Agent)  ->  levels (Levels)  ->  output (Output)  ->  the node and its runs (Node)

So what publishes can't reach what decides, and what decides can't reach what starts and ends runs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from condor_joblens.agent.flight_recorder import FlightRecorder
from condor_joblens.agent.function_traces import FunctionTraces
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.agent.lifecycle.crash_words import CrashWords
from condor_joblens.agent.lifecycle.leftovers import Leftovers
from condor_joblens.agent.lifecycle.restarts import Restarts
from condor_joblens.agent.lifecycle.settling import Settling
from condor_joblens.agent.lifecycle.startd_state import StartdState
from condor_joblens.agent.lifecycle.tracebacks import Tracebacks
from condor_joblens.agent.node import Node
from condor_joblens.agent.output.output_state import Output
from condor_joblens.agent.peeks import Peeks
from condor_joblens.agent.python_calls import PythonCalls
from condor_joblens.agent.shell_traces import ShellTraces
from condor_joblens.agent.throw_traces import ThrowTraces
from condor_joblens.agent.triggers.feed import Triggers


@dataclass
class Agent:
    """All of it. What has no group above is the state of the lifecycle group."""

    node: Node
    output: Output
    levels: Levels
    resumed: dict[int, np.void] = field(default_factory=dict)  # run -> the row that it had before its checkpoint
    restarts: Restarts = field(default_factory=lambda: Restarts(time.monotonic))
    startd: StartdState = field(default_factory=StartdState)
    crashes: CrashWords = field(default_factory=CrashWords)
    tracebacks: Tracebacks = field(init=False)
    leftovers: Leftovers = field(default_factory=Leftovers)
    settling: Settling = field(init=False)
    recorder: FlightRecorder = field(init=False)
    triggers: Triggers = field(init=False)
    function_traces: FunctionTraces = field(init=False)
    python_calls: PythonCalls = field(init=False)
    shell_traces: ShellTraces = field(init=False)
    throw_traces: ThrowTraces = field(init=False)
    peeks: Peeks = field(init=False)

    def __post_init__(self) -> None:
        self.settling = Settling(self.node)
        self.tracebacks = Tracebacks(self.node)
        self.recorder = FlightRecorder(self.node, self.output.artifacts, self.crashes.raised)
        self.triggers = Triggers(self.levels, self.recorder)
        self.function_traces = FunctionTraces(self.levels, self.output.artifacts)
        self.python_calls = PythonCalls(self.levels, self.output.artifacts)
        self.shell_traces = ShellTraces(self.levels, self.output.artifacts)
        self.throw_traces = ThrowTraces(self.levels, self.output.artifacts)
        self.peeks = Peeks(self.levels)
