"""joblensd's end of the policy child: never blocks, and outlives whatever happens to the child.

One request is with the child at a time, the others wait in a queue. A child that dies costs the request it
had; the next child gets the rest. joblensd's loop registers `fileno()` for reading, calls `receive()` when it
is readable or when `timeout(now)` seconds have passed, and `expire(now)` before that.
"""

from __future__ import annotations

import select
import signal
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from condor_joblens.errors import printable
from condor_joblens.policy import decision
from condor_joblens.policy.decision import ActivationRequest, Outcome
from condor_joblens.policy.frames import MAX_AD, BadFrame, Message, pack
from condor_joblens.policy.identity import Identity
from condor_joblens.policy.process import ChildProcess

BACKOFF = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before the n-th start in a row that led to no decision; the last one for all further ones."""

CHILD = "the policy child"  # blamed where neither an ad nor a policy is
LOOK_BUSY, LOOK_SOON = 0.05, 0.002  # seconds between looks at a child that computes, or that was killed


@dataclass(frozen=True)
class Limits:
    """Budgets of the child. CPU counts; the wall clock behind it is generous, for a full node is slow."""

    cpu_seconds: float = 0.02  # of one decision
    wall_seconds: float = 1.0  # of one decision, fifty times as much
    start_seconds: float = 30.0  # until a started child is ready
    queue_seconds: float = 60.0  # that a request waits for its turn
    queue_bytes: int = 16 << 20  # of ads that wait


@dataclass
class _Pending:
    key: Hashable
    request: ActivationRequest
    since: float
    identity: Identity = field(default_factory=dict)
    doing: str = "the job's ad"  # to blame if the child dies
    sent_at: float = 0.0
    cpu_at: float = 0.0  # CPU time of the child when it was sent


class PolicyChild:
    """A child that decides about jobs, one after the other, and is replaced when it dies.

    `policies` are (name, text) in the order in which they are asked; `log` is given one line for each that
    has a mistake, and where no child can be had. What befell one job is said in its PolicyFailure.
    """

    def __init__(
        self,
        policies: Sequence[tuple[str, str]],
        limits: Limits | None = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._policies = list(policies)
        self._limits = limits or Limits()
        self._log = log
        self._epoll = select.epoll()  # outlives the children, so that fileno() never changes
        self._child: ChildProcess | None = None
        self._ready = False
        self._started_at = 0.0
        self._start_at: float | None = None  # when the next child is due
        self._fruitless = 0  # starts since the last decision
        self._loading = CHILD  # what a child that is not ready yet is doing
        self._fault = ""  # why this child is being ended
        self._last_fault = "did not come to this job"  # of the one before
        self._reloading = False
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._current: _Pending | None = None
        self._number = 0  # of the current request
        self._done: list[tuple[Hashable, Outcome]] = []
        self._complaints: set[str] = set()  # lines that were logged since the policies were loaded
        self.errors: list[str] = []
        """A line for each policy that has a mistake and was set aside, since the child is `ready`."""

    @property
    def pid(self) -> int | None:
        """The child's process, None between two children."""
        return self._child.pid if self._child is not None else None

    @property
    def ready(self) -> bool:
        """Whether the child has compiled its policies."""
        return self._ready

    def fileno(self) -> int:
        """One descriptor for the life of the object, readable when `receive()` has something to do."""
        return self._epoll.fileno()

    def start(self) -> None:
        """Start the child; requests may be submitted before it is ready."""
        self._spawn(time.monotonic())

    def stop(self) -> None:
        """End the child; what it has not answered is never answered. The object is of no further use."""
        self._start_at = None
        if self._child is not None:
            self._child.kill()
            self._child.wait(0.5)
            self._child = None
        self._epoll.close()

    def reload(self, policies: Sequence[tuple[str, str]], limits: Limits | None = None) -> None:
        """Go on with other policies, and other limits if given, in a new child. No request is lost."""
        self._policies = list(policies)
        self._limits = limits or self._limits
        self._complaints.clear()
        if self._child is not None:
            self._reloading = True
            self._end("")

    def submit(self, key: Hashable, request: ActivationRequest) -> None:
        """Ask for a decision; `receive()` gives it with the same key, later and once."""
        pending = _Pending(key, request, time.monotonic())
        if len(request.ad) > MAX_AD:
            self._fail(pending, f"the job's ad has {len(request.ad)} bytes, more than {MAX_AD}")
        elif self._queued_bytes + len(request.ad) > self._limits.queue_bytes:
            self._fail(pending, "too many jobs wait for their policy")
        else:
            self._queue.append(pending)
            self._queued_bytes += len(request.ad)
            self._send_next()

    def receive(self) -> list[tuple[Hashable, Outcome]]:
        """The requests that were decided or have failed since the last call."""
        if self._child is not None and self._child.connected:
            self._child.flush()
            self._read(self._child)
        self._reap(time.monotonic())
        self._send_next()
        done, self._done = self._done, []
        return done

    def timeout(self, now: float) -> float | None:
        """Seconds until `expire()` and `receive()` have something to do; None: only `fileno()` can tell."""
        if self._done:
            return LOOK_SOON
        if self._child is not None and not self._child.connected:
            return LOOK_SOON
        if self._current is not None:
            return LOOK_BUSY
        deadlines = [pending.since + self._limits.queue_seconds for pending in list(self._queue)[:1]]
        if self._start_at is not None:
            deadlines.append(self._start_at)
        elif self._child is not None and not self._ready:
            deadlines.append(self._started_at + self._limits.start_seconds)
        return max(LOOK_SOON, min(deadlines) - now) if deadlines else None

    def expire(self, now: float) -> None:
        """End a child beyond its budget, start one that is due, give up what has waited too long.

        `now` is time.monotonic().
        """
        self._check_budget(now)
        self._reap(now)
        if self._start_at is not None and now >= self._start_at:
            self._spawn(now)
        while self._queue and now - self._queue[0].since > self._limits.queue_seconds:
            self._fail(self._dequeue(), f"{CHILD} {self._last_fault}")

    # The child's life.

    def _spawn(self, now: float) -> None:
        self._start_at, self._started_at, self._ready = None, now, False
        self._loading, self._fault = CHILD, ""
        try:
            self._child = ChildProcess()
        except OSError as error:
            self._last_fault = f"can't be started: {error.strerror}"
            self._complain(f"{CHILD} {self._last_fault}: no policies are in force")
            self._schedule(now)
            return
        self._epoll.register(self._child, select.EPOLLIN)
        self._send(pack({"verb": "policies", "policies": self._policies}))

    def _check_budget(self, now: float) -> None:
        child, current, limits = self._child, self._current, self._limits
        if child is None or not child.connected:
            return
        if not self._ready and now - self._started_at > limits.start_seconds:
            self._end(f"was not ready after {limits.start_seconds:g} s")
        elif current is not None and child.cpu_seconds() - current.cpu_at > 2 * limits.cpu_seconds:
            self._end(self._beyond_cpu())  # its own timer should have ended it: it is not itself
        elif current is not None and now - current.sent_at > limits.wall_seconds:
            self._end(f"took more than {limits.wall_seconds:g} s")

    def _beyond_cpu(self) -> str:
        return f"took more than {self._limits.cpu_seconds * 1000:g} ms of CPU"

    def _end(self, fault: str) -> None:
        """Kill the child for this fault; `_reap` sees its end."""
        self._fault = fault
        if self._child is not None and self._child.connected:
            self._child.kill()

    def _reap(self, now: float) -> None:
        if self._child is None or self._child.connected:
            return
        code = self._child.exit_code()
        if code is None:
            return
        current, self._current = self._current, None
        was_ready, self._ready, self._child = self._ready, False, None
        retired = code == 0 and was_ready and not self._fault
        if current is not None and (retired or self._reloading):
            self._queue.appendleft(current)
            self._queued_bytes += len(current.request.ad)
        if retired or self._reloading:
            self._start_at, self._reloading = now, False
            return
        blamed = current.doing if current is not None else self._loading
        self._last_fault = self._fault or self._death(code, blamed)
        if current is not None:
            self._fail(current, f"{blamed} {self._last_fault}")
        elif not was_ready:
            self._complain(f"{blamed} {self._last_fault}: no policies are in force")
        self._schedule(now)

    def _death(self, code: int, blamed: str) -> str:
        if code == -signal.SIGPROF:
            return self._beyond_cpu()
        names = {-number.value: number.name for number in signal.Signals}
        how = names.get(code, f"exit code {code}")
        return f"ended ({how})" if blamed == CHILD else f"killed the policy child ({how})"

    def _schedule(self, now: float) -> None:
        self._start_at = now + BACKOFF[min(self._fruitless, len(BACKOFF) - 1)]
        self._fruitless += 1

    def _complain(self, line: str) -> None:
        """Log a line once, however many children in a row give cause for it."""
        if line not in self._complaints:
            self._complaints.add(line)
            self._log(line)

    # Requests and replies.

    def _send(self, frame: bytes) -> None:
        assert self._child is not None
        self._child.send(frame)
        self._watch(self._child)

    def _watch(self, child: ChildProcess) -> None:
        self._epoll.modify(child, select.EPOLLIN | (select.EPOLLOUT if child.has_unsent else 0))

    def _dequeue(self) -> _Pending:
        pending = self._queue.popleft()
        self._queued_bytes -= len(pending.request.ad)
        return pending

    def _send_next(self) -> None:
        child = self._child
        if child is None or not (child.connected and self._ready):
            return
        if self._current is not None or not self._queue:
            return
        current = self._current = self._dequeue()
        self._number += 1
        current.sent_at, current.cpu_at = time.monotonic(), child.cpu_seconds()
        message = {
            "verb": "decide",
            "id": self._number,
            "slot": dict(current.request.slot),
            "default": current.request.default.word,
            "max": current.request.cap.word,
            "cpu": self._limits.cpu_seconds,
        }
        self._send(pack(message, current.request.ad))

    def _read(self, child: ChildProcess) -> None:
        try:
            for message in child.receive():
                self._take(message)
        except BadFrame as error:
            self._end(f"made the policy child answer nonsense ({printable(str(error), 60)})")
        if child.connected:
            self._watch(child)

    def _take(self, message: Message) -> None:
        verb, current = message.get("verb"), self._current
        if not self._ready:
            self._take_early(verb, message)
        elif current is None or message.get("id") != self._number:
            raise BadFrame("an answer that nobody asked for")
        elif verb == "doing":
            current.doing = decision.doing(message)
            current.identity = decision.names(message) or current.identity
        elif verb == "decided":
            self._finish(current, decision.decided(message, current.request))
        elif verb == "failed":
            self._finish(current, decision.failed(message, current.request))
        else:
            raise BadFrame("an unknown verb")

    def _take_early(self, verb: object, message: Message) -> None:
        if verb == "ready":
            self._ready = True
            self.errors = [str(error) for error in decision.failures(message)]
            for line in self.errors:
                self._complain(f"policy set aside: {line}")
        elif verb == "doing":
            self._loading = decision.doing(message)
        elif verb == "unfit":
            self._fault = decision.unfit(message)
        else:
            raise BadFrame("an unknown verb")

    def _finish(self, pending: _Pending, outcome: Outcome) -> None:
        self._current = None
        self._fruitless = 0
        self._done.append((pending.key, outcome))

    def _fail(self, pending: _Pending, why: str) -> None:
        self._done.append((pending.key, decision.failure(why, pending.request, pending.identity)))


def check(policies: Sequence[tuple[str, str]], seconds: float = 10.0) -> list[str]:
    """What a child has to say against `policies`: a line for each mistake, none where all is well."""
    complaints: list[str] = []
    child = PolicyChild(policies, log=complaints.append)
    child.start()
    deadline = time.monotonic() + seconds
    while not (child.ready or complaints):
        if time.monotonic() > deadline:
            complaints.append(f"{CHILD} was not ready after {seconds:g} s")
        select.select([child], [], [], 0.02)
        child.receive()
    child.stop()
    return complaints
