"""The wire between joblensd and its policy child: frames on a stream socket.

A frame is two big-endian 32-bit lengths, a JSON object of the first length, and a body of the second. An ad is carried
as the bytes it is. The object's `verb` says what it means. (A stream, not packets: an ad of 1 MB is beyond what
net.core.wmem_max lets a packet have.)

    to the child     policies     {policies: [[file, text], ...], usage?: [path, ...], list?, anew?}: replaces others
                     decide       {id, slot: {Name, ...}, default, max, cpu, node?: {...}, usage?: {path: number},
                                   now?, started?, state?, key?, trace?, clock?, entries?} + the ad
                     replay       {id, cpu, default, max, lengths: [bytes, ...]} + ads, one after the other
                     decide_many  {id, cpu, now, keys: [key, ...], usage: [path, ...], careful?, entries?} + a matrix
                     forget       {keys: [key, ...]}: no answer
                     read         {id, cpu, values: [text, ...]}: what a person wrote behind names of an ad
    from the child   ready        {errors: [failure, ...], rules?: [{file, line, name, ...}]}: the answer to policies
                     unfit        {reason}: it can't work, and ends
                     doing        {id, what}: what it would die of, said before it begins; at first it is the job's ad
                     decided      {id, identity, answer..., trace?, cpu_seconds?}
                     failed       {id, reason}
                     decided_many {id, answers: {key: answer}, unknown: [key, ...], more}: several, `more` but the last
                     replayed     {id, results: [{...}, ...]}: for `joblens policy simulate`, see replay.py
                     was_read     {id, wrong: [text, ...]}: those that are no expressions

    answer           {level, cap, requested, written, policy, reason, period, priority, sinks, report, traced, quota,
                     until, state, errors, entries}
    failure          {file, line, rule, what}; `rule` is empty where it is the file that fails

`entries` are names and ClassAd expressions, and in an answer the names of those that are true of the job.
`key` makes the child keep the job: a `decide_many` then needs no ad. Its body has a row a key and a column a path, as
little-endian float64, with NaN for an absent number. Slot, node, default and max are those of the job's `decide`. The
answer has the jobs whose answer has changed. `unknown` are those whose ad the child does not have (any more): they must
be decided anew. The child ends itself beyond `cpu` seconds, in a round as in one decision. With `careful` it says
before each rule of each job what it does, as in `decide`, so that a round that died finds its culprit. Rules without
code of their own can't take long and are not told.

Policies may come again to the same child: the jobs that it keeps are then decided by the new ones. What was `seen`
across jobs is remembered unless `anew` says otherwise. With `usage`, the paths of all numbers there are, another one in
a rule is a mistake. `list` makes `ready` tell the rules, for people.

`state` is what policies know of a run from before: temporary entries and what was seen. It comes with each answer and
goes back with the run's next `decide`. Without it, this is the run's first; temporary entries then begin at the run's
start, `started`, if that is given. `until` is when the answer is to be asked again at the latest. `now` and `until` are
epoch seconds. A path is that of a metric (Cpu.RecentCores) or any other fact of the round (IdleSeconds).
"""

from __future__ import annotations

import json
import struct
from typing import Any

MAX_POLICIES = 8 << 20  # bytes of JSON to the child
ENTRY = "entry "
"""What `doing` says before the name of an entry whose expression is evaluated. It is to be blamed, and no job."""

MAX_AD = 1 << 20  # bytes of one ad
MAX_BODY = 4 << 20  # bytes of a round's matrix, or of many ads
MAX_REPLY = 64 << 10  # bytes of JSON from the child, which is believed in nothing

LENGTHS = struct.Struct(">II")

Message = dict[str, Any]


class BadFrame(ValueError):
    """The other side sent what is no frame, or one beyond the bounds."""


def pack(message: Message, body: bytes = b"") -> bytes:
    """One frame."""
    text = json.dumps(message).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


class FrameReader:
    """Takes bytes as they come and gives frames as they are complete."""

    def __init__(self, max_message: int, max_body: int) -> None:
        self._max_message = max_message
        self._max_body = max_body
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[Message, bytes]]:
        """The frames that `data` completes. Raises BadFrame; the stream is then of no further use."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= LENGTHS.size:
            message_length, body_length = LENGTHS.unpack_from(self._buffer)
            if message_length > self._max_message or body_length > self._max_body:
                raise BadFrame(f"a frame of {message_length} + {body_length} bytes")
            body_start = LENGTHS.size + message_length
            end = body_start + body_length
            if len(self._buffer) < end:
                break
            message = _parse(bytes(self._buffer[LENGTHS.size : body_start]))
            frames.append((message, bytes(self._buffer[body_start:end])))
            del self._buffer[:end]
        return frames


def _parse(text: bytes) -> Message:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise BadFrame("not a JSON object")
    return message
