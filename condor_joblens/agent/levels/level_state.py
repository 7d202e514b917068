"""What joblensd holds to decide about levels: the policy child, what it has been sent, and the node's budgets."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from condor_joblens.agent.levels.budgets import OwnCpu
from condor_joblens.agent.levels.entries import Entries
from condor_joblens.agent.log_once import LogOnce
from condor_joblens.agent.node import Node
from condor_joblens.agent.output.output_state import Output
from condor_joblens.jobs.saved_ads import SavedAds
from condor_joblens.policy.peek_request import PeekRequest
from condor_joblens.policy.policy_answers import Decision
from condor_joblens.policy.policy_client import PolicyClient
from condor_joblens.policy.slot_attributes import Fact, SlotAttributes
from condor_joblens.policy.trace_request import TraceRequest
from condor_joblens.startd.overlay import Truth


@dataclass
class PolicyInput:
    """What the policies have been sent about one run."""

    is_submitted: bool = False
    job_ad: bytes | None = None  # what was submitted, until they have answered
    slot_attributes: dict[str, Fact] | None = None  # from the slot's ad; None: not read yet
    slot_ad_read_at: float = 0.0  # CLOCK_MONOTONIC of the last time that it was read after a change
    startd_lines: bytes = b""  # the job's attributes in the slot's ad
    truth: Truth | None = None  # what the startd holds of the job, if it was asked
    startd_facts: dict[str, Fact] = field(default_factory=dict)  # and of the slot
    entries: tuple[str, ...] = ()  # names of those whose expression is true of the job
    is_judged: bool = False  # the ad, as it is now, has been sent to the policies
    asked_since: float = 0.0  # CLOCK_MONOTONIC from which on the startd's answers are about this run
    ask_again_at: float = 0.0  # CLOCK_MONOTONIC, if the startd did not know the run
    ask_pause: float = 1.0  # seconds
    trace: TraceRequest = field(default_factory=TraceRequest)  # +JobLensTrace
    policy_trace: TraceRequest = field(default_factory=TraceRequest)  # what the policies want traced
    trace_troubles: dict[str, str] = field(default_factory=dict)  # what is to be known of traces, by their notes' names
    peek: PeekRequest = field(default_factory=PeekRequest)  # +JobLensPeek
    peek_trouble: str = ""  # what is to be known of the variables that it asks for (agent/peeks.py)
    python_trouble: str = ""  # what is to be known of the calls of its Pythons (agent/python_calls.py)
    is_decided: bool = False  # the policies have answered, or it was given up to wait for them
    brings_in_hook: bool | None = None  # its wrapper was told to load it into its Pythons; None: it has not asked, or
    # an earlier joblensd has answered it


class Failed(NamedTuple):
    """The policies have failed on a run."""

    in_a_row: int
    again_at: float  # CLOCK_MONOTONIC at which they may be asked again


@dataclass
class PolicyRound:
    """The round over all running jobs (agent/levels/policy_rounds.py)."""

    log_once: LogOnce  # mistakes of the policies that are loaded
    next_at: float = 0.0  # CLOCK_MONOTONIC
    due: deque[str] = field(default_factory=deque)  # keys of runs that this round has yet to ask about
    size: int = 1  # runs of this round
    unknown: deque[str] = field(default_factory=deque)  # keys of runs that must be sent to the child with their ads
    held: dict[int, Decision] = field(default_factory=dict)  # run -> a decision that JOBLENS_POLICY_HOLD delays
    failed: dict[str, Failed] = field(default_factory=dict)  # by key of a run, since the last decision about it
    child: int = 0  # the one to which all runs were sent, counted as PolicyChild.lives counts
    disabled: dict[str, str] | None = None  # policy files that are disabled, as last published; None: not yet

    def forget(self, run: int, key: str) -> None:
        """The run has ended."""
        self.held.pop(run, None)
        self.failed.pop(key, None)


@dataclass
class Levels:
    """The state of the level decisions, and what they act on."""

    node: Node
    output: Output
    policy: PolicyClient
    saved_ads: SavedAds
    slot_attributes: SlotAttributes
    inputs: dict[int, PolicyInput] = field(default_factory=dict)  # by run
    round: PolicyRound = field(init=False)
    entries: Entries = field(default_factory=Entries)
    own_cpu: OwnCpu = field(default_factory=OwnCpu)
    cut_off: dict[int, float] = field(default_factory=dict)
    """Numbers of runs that an earlier joblensd has sampled, and this one has not yet: when it began (Unix time)."""

    def __post_init__(self) -> None:
        self.round = PolicyRound(LogOnce(self.node.log))

    def forget(self, run: int) -> None:
        """The run has ended."""
        key = self.node.key_of(run)
        self.inputs.pop(run, None)
        self.policy.forget(key)
        self.saved_ads.forget(int(self.node.runs.state["cgroup_id"][run]))
        self.round.forget(run, key)
