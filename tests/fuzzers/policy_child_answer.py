"""Frames and answers of the policy child, in which joblensd believes nothing."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from condor_joblens.model.levels import Level
from condor_joblens.policy import policy_answers
from condor_joblens.policy.child_frames import MAX_REPLY, BadFrame, FrameReader, pack

_ANSWER = {
    "level": "io", "requested": None, "written": "", "policy": "gpu jobs", "reason": "they ask", "errors": [],
    "identity": {"Owner": "alice", "ClusterId": 12}, "cap": "trace", "period": 1.5, "priority": 3,
    "sinks": ["file"], "until": 1e9, "state": {"entries": {"gpu jobs": 1.0}, "seen": {}},
}  # fmt: skip
SEEDS = [
    json.dumps(_ANSWER).encode(),
    json.dumps({"errors": [{"file": "a.lua", "line": 3, "rule": "r", "what": "nil"}]}).encode(),
    json.dumps({"reason": "too long", "what": "rule r"}).encode(),
    b'{"level":1,"written":"","policy":"","reason":"","errors":[],"state":{"a":' + b"[" * 200 + b"]" * 200 + b"}}",
]
WORDS = [f'"{name}":'.encode() for name in _ANSWER] + [b"NaN", b"Infinity", b"1e999", b"null", b"\\ud800"]
_REQUEST = policy_answers.ActivationRequest(b"", {}, Level.BASIC, Level.IO)


def check(data: bytes) -> None:
    """Any frame is right, within the site's cap and short, or a BadFrame. What is kept can be sent back."""
    head = len(data).to_bytes(4, "big") + bytes(4)
    with contextlib.suppress(BadFrame):
        FrameReader(MAX_REPLY, 0).feed(data)
    try:
        [(message, _)] = FrameReader(MAX_REPLY, 0).feed(head + data)
    except BadFrame:
        return
    with contextlib.suppress(BadFrame):
        _check_decision(policy_answers.decided(message, _REQUEST))
    for read in (policy_answers.doing, policy_answers.unfit, policy_answers.failures, policy_answers.names):
        with contextlib.suppress(BadFrame):
            read(message)
    with contextlib.suppress(BadFrame):
        assert policy_answers.failed(message, _REQUEST).note.isprintable()


def _check_decision(made: policy_answers.Decision) -> None:
    assert made.level <= Level.IO and made.cap <= Level.IO
    for text in (made.policy, made.reason, made.note, *(made.sinks or ()), *map(str, made.errors)):
        assert text.isascii() and text.isprintable()
    assert _depth(made.state) <= policy_answers.MAX_STATE_DEPTH
    pack({"state": dict(made.state)})


def _depth(value: Any) -> int:
    if not isinstance(value, (dict, list)):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)
