"""joblensd's end of the policy child: never blocks, and outlives whatever happens to the child.

One request is with the child at a time, the others wait in a queue. A child that dies costs the request it
had; a second one, which stands by with all policies loaded, gets the rest. joblensd's loop registers `fileno()`
for reading, calls `receive()` when it is readable or when `timeout(now)` seconds have passed, and `expire(now)`
before that.
"""

from __future__ import annotations

import select
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Union

from condor_joblens.errors import printable
from condor_joblens.policy import decision
from condor_joblens.policy.decision import ActivationRequest, Outcome, RuleFailure
from condor_joblens.policy.faults import ENOUGH, Faults
from condor_joblens.policy.frames import MAX_AD, BadFrame, Message, pack
from condor_joblens.policy.identity import literals
from condor_joblens.policy.worker import CHILD, THE_AD, Worker

BACKOFF = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before the n-th start in a row that led to no decision; the last one for all further ones."""

LOOK_BUSY, LOOK_SOON = 0.05, 0.002  # seconds between looks at a child that computes, or that was killed
SPARE_AGAIN = 30.0  # seconds until another child stands by for one that died standing by


@dataclass(frozen=True)
class Limits:
    """Budgets of the child. CPU counts; the wall clock behind it is generous, for a full node is slow."""

    cpu_seconds: float = 0.02  # of one decision
    wall_seconds: float = 1.0  # of one decision, fifty times as much
    start_seconds: float = 30.0  # until a started child is ready
    queue_seconds: float = 60.0  # that a request waits for its turn
    queue_bytes: int = 16 << 20  # of ads that wait
    spare_seconds: float | None = 5.0  # from a child's first decision to the start of one to stand by; None: none does


@dataclass
class _Pending:
    """One job that is to be decided about."""

    key: str
    request: ActivationRequest
    since: float
    doing: str = THE_AD  # to blame if the child dies
    sent_at: float = 0.0
    cpu_at: float = 0.0  # CPU time of the child when it was sent
    share: float = 1.0  # of the budget of one decision


@dataclass
class _Round:
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
    failed: dict[str, list[str]] = field(default_factory=dict)  # file -> jobs on which it failed


class PolicyChild:
    """A child that decides about jobs, one after the other, and is replaced when it dies.

    `policies` are (name, text) in the order in which they are asked, `paths` the names of a round's numbers; `log` is
    given one line for each policy that has a mistake or fails too often, and where no child can be had. What befell
    one job is said in its PolicyFailure.
    """

    def __init__(
        self,
        policies: Sequence[tuple[str, str]],
        limits: Limits | None = None,
        log: Callable[[str], None] = lambda line: None,
        paths: Sequence[str] = (),
    ) -> None:
        self._policies = list(policies)
        self._limits = limits or Limits()
        self._log = log
        self._paths = list(paths)
        self._epoll = select.epoll()  # outlives the children, so that fileno() never changes
        self._worker: Worker | None = None
        self._spare: Worker | None = None
        self._ending: list[Worker] = []  # those that are nobody's, until their processes are gone
        self._start_at: float | None = None  # when the next child is due
        self._spare_at: float | None = None  # when the next one to stand by is due
        self._fruitless = 0  # starts since the last decision
        self._last_fault = "did not come to this job"  # of the child before
        self._reloading = False
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._current: Union[_Pending, _Round, None] = None
        self._number = 0  # of the current request
        self._done: list[tuple[str, Outcome]] = []
        self._kept: dict[str, str] = {}  # jobs that the child knows -> their owners
        self._complaints: set[str] = set()  # lines that were logged since the policies were loaded
        self._faults = Faults(name for name, _ in self._policies)
        self.lives = 0
        """How many children there have been: each knows no job at first."""
        self.aside: dict[str, str] = {}
        """Files that failed too often -> what they did last; empty again after `reload`."""

    @property
    def pid(self) -> int | None:
        """The child's process, None between two children."""
        return self._worker.process.pid if self._worker is not None else None

    @property
    def spare_pid(self) -> int | None:
        """The process that stands by with its policies loaded, None where there is none."""
        return self._spare.process.pid if self._spare is not None and self._spare.ready else None

    @property
    def ready(self) -> bool:
        """Whether the child has compiled its policies."""
        return self._worker is not None and self._worker.ready

    @property
    def errors(self) -> list[str]:
        """A line for each policy that has a mistake and was not loaded, since the child is `ready`."""
        return self._worker.errors if self._worker is not None else []

    @property
    def idle(self) -> bool:
        """Whether the child has nothing to do, and could."""
        return self.ready and self._current is None and not self._queue

    def knows(self, key: str) -> bool:
        """Whether the child keeps the job, so that `ask_again` needs no ad."""
        return key in self._kept

    def fileno(self) -> int:
        """One descriptor for the life of the object, readable when `receive()` has something to do."""
        return self._epoll.fileno()

    def start(self) -> None:
        """Start the child; requests may be submitted before it is ready."""
        self._spawn(time.monotonic())

    def stop(self) -> None:
        """End the children; what they have not answered is never answered. The object is of no further use."""
        self._start_at = self._spare_at = None
        for worker in (self._worker, self._spare, *self._ending):
            if worker is not None:
                worker.end("")
                worker.process.wait(0.5)
        self._worker = self._spare = None
        self._epoll.close()

    def reload(self, policies: Sequence[tuple[str, str]], limits: Limits | None = None) -> None:
        """Go on with other policies, and other limits if given, in a new child. No request is lost."""
        self._policies = list(policies)
        self._limits = limits or self._limits
        self._complaints.clear()
        self.aside.clear()
        self._faults = Faults(name for name, _ in self._policies)
        self._begin_anew()

    def submit(self, key: str, request: ActivationRequest) -> None:
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

    def ask_again(
        self, keys: Sequence[str], numbers: bytes, now: float, request: ActivationRequest, share: float
    ) -> None:
        """Ask about jobs that the child `knows`; only while it is `idle`.

        `numbers` are float64, a row a job and a column a path, NaN where absent; `now` in epoch seconds; of `request`
        default and cap count. `share` says how many times the budget of one decision it may cost. `receive()` gives
        decisions for the jobs about which it has changed its mind. A job that is no longer known has lost its child.
        """
        assert self.idle
        self._deliver(_Round(keys, numbers, self._paths, now, request, share))

    def forget(self, key: str) -> None:
        """The job is over: the child need not keep it."""
        if self._kept.pop(key, None) is not None and self._worker is not None and self._worker.process.connected:
            self._send(self._worker, pack({"verb": "forget", "keys": [key]}))

    def receive(self) -> list[tuple[str, Outcome]]:
        """The requests that were decided or have failed since the last call."""
        for worker in (self._worker, self._spare):
            if worker is not None and worker.process.connected:
                worker.process.flush()
                self._read(worker)
        self._reap(time.monotonic())
        self._send_next()
        done, self._done = self._done, []
        return done

    def timeout(self, now: float) -> float | None:
        """Seconds until `expire()` and `receive()` have something to do; None: only `fileno()` can tell."""
        if self._done:
            return LOOK_SOON
        if any(worker is not None and not worker.process.connected for worker in (self._worker, self._spare)):
            return LOOK_SOON
        if self._current is not None:
            return LOOK_BUSY
        deadlines = [pending.since + self._limits.queue_seconds for pending in list(self._queue)[:1]]
        deadlines += [at for at in (self._start_at, self._spare_at) if at is not None]
        for worker in (self._worker, self._spare):
            if worker is not None and not worker.ready:
                deadlines.append(worker.started_at + self._limits.start_seconds)
        return max(LOOK_SOON, min(deadlines) - now) if deadlines else None

    def expire(self, now: float) -> None:
        """End a child beyond its budget, start one that is due, give up what has waited too long.

        `now` is time.monotonic().
        """
        self._check_budgets(now)
        self._reap(now)
        if self._start_at is not None and now >= self._start_at:
            self._spawn(now)
        if self._spare_at is not None and now >= self._spare_at:
            self._stand_by(now)
        while self._queue and now - self._queue[0].since > self._limits.queue_seconds:
            self._fail(self._dequeue(), f"{CHILD} {self._last_fault}")

    # The children's lives.

    def _in_force(self) -> list[tuple[str, str]]:
        return [(name, text) for name, text in self._policies if name not in self.aside]

    def _start(self) -> Worker:
        worker = Worker(self._in_force(), self._paths)
        self._epoll.register(worker.process, select.EPOLLIN)
        self._watch(worker)
        return worker

    def _spawn(self, now: float) -> None:
        self._start_at = None
        try:
            self._worker = self._start()
            self.lives += 1
        except OSError as error:
            self._last_fault = f"can't be started: {error.strerror}"
            self._complain(f"{CHILD} {self._last_fault}: no policies are in force")
            self._schedule(now)

    def _stand_by(self, now: float) -> None:
        self._spare_at = None
        try:
            self._spare = self._start()
        except OSError:
            self._spare_at = now + SPARE_AGAIN

    def _want_spare(self, now: float) -> None:
        seconds = self._limits.spare_seconds
        if self._spare is None and self._spare_at is None and seconds is not None:
            self._spare_at = now + max(seconds, BACKOFF[min(self._fruitless, len(BACKOFF) - 1)])

    def _check_budgets(self, now: float) -> None:
        for worker in (self._worker, self._spare):
            late = worker is not None and not worker.ready and now - worker.started_at > self._limits.start_seconds
            if worker is not None and worker.process.connected and late:
                worker.end(f"was not ready after {self._limits.start_seconds:g} s")
        worker, current = self._worker, self._current
        if worker is None or current is None or not worker.process.connected:
            return
        if worker.process.cpu_seconds() - current.cpu_at > 2 * current.share * self._limits.cpu_seconds:
            worker.end(self._beyond_cpu(current))  # its own timer should have ended it: it is not itself
        elif now - current.sent_at > current.share * self._limits.wall_seconds:
            worker.end(f"took more than {current.share * self._limits.wall_seconds:g} s")

    def _beyond_cpu(self, current: Union[_Pending, _Round, None]) -> str:
        share = 1.0 if current is None else current.share
        return f"took more than {share * self._limits.cpu_seconds * 1000:g} ms of CPU"

    def _begin_anew(self) -> None:
        """Other policies are in force: the child that loaded the ones before ends, and so does the one standing by."""
        if self._spare is not None:
            self._spare.end("")
            self._ending.append(self._spare)
            self._spare = None
        self._spare_at = None
        if self._worker is not None:
            self._reloading = True
            self._worker.end("")

    def _reap(self, now: float) -> None:
        self._ending = [worker for worker in self._ending if worker.process.exit_code() is None]
        spare, worker = self._spare, self._worker
        if spare is not None and not spare.process.connected and spare.process.exit_code() is not None:
            self._spare, self._spare_at = None, now + SPARE_AGAIN
        if worker is None or worker.process.connected:
            return
        code = worker.process.exit_code()
        if code is not None:
            self._worker = None
            self._kept.clear()
            self._bury(worker, code, now)

    def _bury(self, worker: Worker, code: int, now: float) -> None:
        """What the child had to do is handed on or has failed, and another takes its place."""
        current, self._current = self._current, None
        retired = code == 0 and worker.ready and not worker.fault
        if retired or self._reloading:
            self._put_back(current)
            self._reloading = False
            self._replace(now, 0.0)
            return
        blamed = current.doing if current is not None else worker.loading if not worker.ready else CHILD
        self._last_fault = worker.fault or self._death(code, blamed, current)
        if isinstance(current, _Pending):
            self._fail(current, f"{blamed} {self._last_fault}")
            self._blame(blamed, current)
        elif current is not None:
            self._complain(f"{blamed} {self._last_fault}: each of them is decided anew")
        elif not worker.ready:
            self._complain(f"{blamed} {self._last_fault}: no policies are in force")
        self._schedule(now)

    def _put_back(self, current: Union[_Pending, _Round, None]) -> None:
        if isinstance(current, _Pending):
            current.doing = THE_AD
            self._queue.appendleft(current)
            self._queued_bytes += len(current.request.ad)

    def _death(self, code: int, blamed: str, current: Union[_Pending, _Round, None]) -> str:
        if code == -signal.SIGPROF:
            return self._beyond_cpu(current)
        names = {-number.value: number.name for number in signal.Signals}
        how = names.get(code, f"exit code {code}")
        return f"ended ({how})" if blamed == CHILD else f"killed the policy child ({how})"

    def _schedule(self, now: float) -> None:
        wait = BACKOFF[min(self._fruitless, len(BACKOFF) - 1)]
        self._fruitless += 1
        self._replace(now, wait)

    def _replace(self, now: float, wait: float) -> None:
        """The one that stands by takes over, ready or nearly so; else another is started after `wait` seconds."""
        if self._spare is not None and self._spare.process.connected:
            self._worker, self._spare = self._spare, None
            self.lives += 1
            if self._worker.ready:
                self._want_spare(now)
        else:
            self._start_at = now + wait

    def _complain(self, line: str) -> None:
        """Log a line once, however many children in a row give cause for it."""
        if line not in self._complaints:
            self._complaints.add(line)
            self._log(line)

    # Whose fault it is.

    def _blame(self, doing: str, pending: _Pending) -> None:
        """The child died of what it was `doing`, as it said before."""
        for name, _ in self._policies:
            if f"{doing}:".startswith(f"policy {name}:"):
                owner = str(literals(pending.request.ad).get("Owner", ""))
                self._failed(name, pending.key, owner, f"{doing} {self._last_fault}")

    def _failed(self, file: str, key: str, owner: str, what: str) -> None:
        if file in self.aside or not self._faults.failed(file, key, owner):
            return
        self.aside[file] = what
        self._log(f"policy {file} failed {ENOUGH} times in a row and is set aside until condor_reconfig: {what}")
        self._begin_anew()

    def _judge(self, key: str, owner: str, errors: Sequence[RuleFailure]) -> None:
        failed = {error.file: str(error) for error in errors}
        self._faults.worked(name for name, _ in self._policies if name not in failed)
        for file, what in failed.items():
            self._failed(file, key, owner, what)

    def _judge_round(self, current: _Round) -> None:
        """A file that failed on some of many jobs worked on the others; what failed on all failed in a row."""
        keys = [key for key in current.keys if key in self._kept]
        if not keys:
            return
        for name, _ in self._policies:
            on = current.failed.get(name, [])
            if len(on) < len(keys):
                self._faults.worked([name])
                continue
            for key in on:
                self._failed(name, key, self._kept.get(key, ""), "it failed on every job of a round")

    # Requests and replies.

    def _send(self, worker: Worker, frame: bytes) -> None:
        worker.process.send(frame)
        self._watch(worker)

    def _watch(self, worker: Worker) -> None:
        if worker.process.connected:
            events = select.EPOLLIN | (select.EPOLLOUT if worker.process.has_unsent else 0)
            self._epoll.modify(worker.process, events)

    def _dequeue(self) -> _Pending:
        pending = self._queue.popleft()
        self._queued_bytes -= len(pending.request.ad)
        return pending

    def _send_next(self) -> None:
        worker = self._worker
        free = worker is not None and worker.process.connected and worker.ready and self._current is None
        if free and self._queue:
            self._deliver(self._dequeue())

    def _deliver(self, current: Union[_Pending, _Round]) -> None:
        worker = self._worker
        assert worker is not None
        self._current = current
        self._number += 1
        current.sent_at, current.cpu_at = time.monotonic(), worker.process.cpu_seconds()
        budget = {"id": self._number, "cpu": current.share * self._limits.cpu_seconds}
        if isinstance(current, _Round):
            asked = {"verb": "decide_many", "now": current.now, "keys": current.keys, "usage": current.paths}
            self._send(worker, pack({**asked, **budget}, current.numbers))
        else:
            self._send(worker, pack({**_question(current), **budget}, current.request.ad))

    def _read(self, worker: Worker) -> None:
        try:
            for message in worker.process.receive():
                self._take(worker, message)
        except BadFrame as error:
            worker.end(f"made the policy child answer nonsense ({printable(str(error), 60)})")
        self._watch(worker)

    def _take(self, worker: Worker, message: Message) -> None:
        if not worker.ready:
            worker.take_early(message)
            for line in worker.errors:
                self._complain(f"policy set aside: {line}")
            return
        verb, current = message.get("verb"), self._current
        if worker is not self._worker or current is None or message.get("id") != self._number:
            raise BadFrame("an answer that nobody asked for")
        if verb == "doing":
            current.doing = decision.doing(message)
        elif isinstance(current, _Round):
            self._take_answers(current, message)
        elif verb == "decided":
            decided = decision.decided(message, current.request)
            owner = str(decided.identity.get("Owner", ""))
            if current.request.keep:
                self._kept[current.key] = owner
            self._finish()
            self._done.append((current.key, decided))
            self._judge(current.key, owner, decided.errors)
        elif verb == "failed":
            failed = decision.failed(message, current.request)
            self._finish()
            self._done.append((current.key, failed))
        else:
            raise BadFrame("an unknown verb")

    def _take_answers(self, current: _Round, message: Message) -> None:
        answers, unknown = message.get("answers"), message.get("unknown")
        if message.get("verb") != "decided_many" or not isinstance(answers, dict) or not isinstance(unknown, list):
            raise BadFrame("no answers")
        for key, answer in answers.items():
            if key not in current.keys or not isinstance(answer, dict):
                raise BadFrame("an answer about a job that nobody asked about")
            decided = decision.decided(answer, current.request)
            self._done.append((key, decided))
            for error in decided.errors:
                current.failed.setdefault(error.file, []).append(key)
        for key in unknown:
            self._kept.pop(str(key), None)
        if not message.get("more"):
            self._finish()
            self._judge_round(current)

    def _finish(self) -> None:
        self._current = None
        self._fruitless = 0
        self._want_spare(time.monotonic())

    def _fail(self, pending: _Pending, why: str) -> None:
        self._done.append((pending.key, decision.failure(why, pending.request)))


def _question(pending: _Pending) -> Message:
    """The `decide` message, without what belongs to the budget."""
    request = pending.request
    optional = {
        "usage": request.usage,
        "now": request.now,
        "started": request.started,
        "key": pending.key if request.keep else None,
    }
    return {
        "verb": "decide",
        "slot": dict(request.slot),
        "node": dict(request.node),
        "state": dict(request.state),
        "default": request.default.word,
        "max": request.cap.word,
        **{name: value for name, value in optional.items() if value is not None},
    }


def check(policies: Sequence[tuple[str, str]], seconds: float = 10.0) -> list[str]:
    """What a child has to say against `policies`: a line for each mistake, none where all is well."""
    complaints: list[str] = []
    child = PolicyChild(policies, Limits(spare_seconds=None), complaints.append)
    child.start()
    deadline = time.monotonic() + seconds
    while not (child.ready or complaints):
        if time.monotonic() > deadline:
            complaints.append(f"{CHILD} was not ready after {seconds:g} s")
        select.select([child], [], [], 0.02)
        child.receive()
    child.stop()
    return complaints
