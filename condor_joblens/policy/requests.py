"""What joblensd asks of the policy child, and what that may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from condor_joblens.policy.child_frames import Message, pack
from condor_joblens.policy.policy_answers import ActivationRequest
from condor_joblens.policy.policy_child import THE_AD


@dataclass(frozen=True)
class ChildLimits:
    """Budgets of the child. CPU counts; the wall clock behind it is generous, for a full node is slow."""

    cpu_seconds: float = 0.02  # of one decision
    wall_seconds: float = 1.0  # of one decision, fifty times as much
    start_seconds: float = 30.0  # until a started child is ready
    queue_seconds: float = 60.0  # that a request waits for its turn
    queue_bytes: int = 16 << 20  # of ads that wait
    spare_seconds: float | None = 5.0  # from a child's first decision to the start of one to stand by; None: none does


@dataclass
class JobRequest:
    """One job that is to be decided about."""

    key: str
    request: ActivationRequest
    since: float
    doing: str = THE_AD  # to blame if the child dies
    sent_at: float = 0.0
    cpu_at: float = 0.0  # CPU time of the child when it was sent
    share: float = 1.0  # of the budget of one decision

    def frame(self, budget: Message) -> bytes:
        """The `decide` message."""
        request = self.request
        optional = {
            "usage": request.usage,
            "now": request.now,
            "started": request.started,
            "key": self.key if request.keep else None,
        }
        message = {
            "verb": "decide",
            "slot": dict(request.slot),
            "node": dict(request.node),
            "state": dict(request.state),
            "default": request.default.word,
            "max": request.cap.word,
            **{name: value for name, value in optional.items() if value is not None},
        }
        return pack({**message, **budget}, request.ad)


@dataclass
class RoundRequest:
    """Jobs that the child knows, and their numbers."""

    keys: Sequence[str]
    numbers: bytes
    paths: Sequence[str]
    now: float
    request: ActivationRequest  # their default and cap
    share: float  # how many times the budget of one decision
    doing: str = "a round over running jobs"
    sent_at: float = 0.0
    cpu_at: float = 0.0

    def frame(self, budget: Message) -> bytes:
        """The `decide_many` message."""
        message = {"verb": "decide_many", "now": self.now, "keys": self.keys, "usage": self.paths}
        return pack({**message, **budget}, self.numbers)


PolicyRequest = Union[JobRequest, RoundRequest]
