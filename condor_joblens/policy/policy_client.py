"""joblensd's end of the policy child: never blocks, and outlives whatever happens to the child.

One request is with the child at a time, the others wait in a queue, in which the owners of jobs take turns. A child
that dies costs the request it had; a second one, which stands by with all policies loaded, gets the rest. An owner
whose jobs kill one child after the other has to wait. joblensd's loop registers `fileno()` for reading, calls
`receive()` when it is readable or when `timeout(now)` seconds have passed, and `expire(now)` before that.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from condor_joblens.common.errors import printable
from condor_joblens.policy import policy_answers
from condor_joblens.policy.active_policies import ActivePolicies, Policies
from condor_joblens.policy.child_frames import ENTRY, MAX_AD, BadFrame, Message, pack
from condor_joblens.policy.child_pool import ChildPool, Death
from condor_joblens.policy.child_process import Start
from condor_joblens.policy.entry_failures import EntryFailures
from condor_joblens.policy.owner_failures import OwnerFailures
from condor_joblens.policy.policy_answers import ActivationRequest, PolicyAnswer, RuleFailure
from condor_joblens.policy.policy_child import CHILD, THE_AD, PolicyChild
from condor_joblens.policy.request_queue import RequestQueue
from condor_joblens.policy.requests import ChildLimits, JobRequest, PolicyRequest, RoundRequest

LOOK_BUSY, LOOK_SOON = 0.05, 0.002  # seconds between looks at a child that computes, or that was killed


@dataclass
class _KnownJob:
    """A job that the child keeps."""

    person: str  # ActivationRequest.person
    failing: frozenset[str]  # files that failed in its last answer


def _files_of(errors: Sequence[RuleFailure]) -> frozenset[str]:
    return frozenset(error.file for error in errors)


class PolicyClient:
    """A child that decides about jobs, one after the other, and is replaced when it dies.

    `policies` are (name, text) in the order in which they are asked, `paths` the names of a round's numbers. `log` gets
    a line for each policy that has a mistake or fails too often, and if there can be no child. What befell one job is
    said in its PolicyFailure. `start` starts a child if this process may not.
    """

    def __init__(
        self,
        policies: Policies,
        limits: ChildLimits | None = None,
        log: Callable[[str], None] = lambda line: None,
        paths: Sequence[str] = (),
        start: Start | None = None,
    ) -> None:
        self._paths = list(paths)
        self._active = ActivePolicies(policies, log)
        self._pool = ChildPool(
            lambda: PolicyChild(self._active.policies, self._paths, start),
            limits or ChildLimits(),
            self._active.complain,
        )
        self._queue = RequestQueue()
        self._owner_failures, self._entry_failures = OwnerFailures(), EntryFailures()
        self._current: PolicyRequest | None = None
        self._log = log
        self._number = 0  # of the current request
        self._done: list[tuple[str, PolicyAnswer]] = []
        self._known: dict[str, _KnownJob] = {}  # that the child keeps

    @property
    def pid(self) -> int | None:
        """The child's process, None between two children."""
        worker = self._pool.serving
        return worker.process.pid if worker is not None else None

    @property
    def spare_pid(self) -> int | None:
        """The process that stands by with its policies loaded, None where there is none."""
        spare = self._pool.spare
        return spare.process.pid if spare is not None and spare.ready else None

    @property
    def lives(self) -> int:
        """How many children there have been: each knows no job at first."""
        return self._pool.lives

    @property
    def aside(self) -> dict[str, str]:
        """Files that failed too often -> what they did last; empty again after `reload`."""
        return self._active.aside

    @property
    def ready(self) -> bool:
        """Whether the child has compiled its policies."""
        return self._pool.serving is not None and self._pool.serving.ready

    @property
    def errors(self) -> list[str]:
        """A line for each policy that has a mistake and was not loaded, since the child is `ready`."""
        return self._pool.serving.errors if self._pool.serving is not None else []

    @property
    def idle(self) -> bool:
        """Whether the child has nothing to do, and could."""
        return self.ready and self._current is None and not self._queue

    def knows(self, key: str) -> bool:
        """Whether the child keeps the job, so that `ask_again` needs no ad."""
        return key in self._known

    def fileno(self) -> int:
        """One descriptor for the life of the object, readable when `receive()` has something to do."""
        return self._pool.fileno()

    def start(self) -> None:
        """Start the child; requests may be submitted before it is ready."""
        self._pool.start(time.monotonic())

    def stop(self) -> None:
        """End the children; what they have not answered is never answered. The object is of no further use."""
        self._pool.stop()

    def reload(self, policies: Policies, limits: ChildLimits | None = None) -> None:
        """Go on with other policies, and other limits if given, in a new child. No request is lost."""
        self._active.load(policies)
        self._pool.limits = limits or self._pool.limits
        self._begin_anew()

    def submit(self, key: str, request: ActivationRequest) -> None:
        """Ask for a decision; `receive()` gives it with the same key, later and once."""
        question = JobRequest(key, request, time.monotonic())
        if len(request.ad) > MAX_AD:
            self._fail(question, f"the job's ad has {len(request.ad)} bytes, more than {MAX_AD}")
        else:
            for lost in self._queue.add(question, self._limits.queue_bytes):
                self._fail(lost, "too many jobs wait for their policy")
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
        self._send(RoundRequest(keys, numbers, self._paths, now, request, share))

    def forget(self, key: str) -> None:
        """The job is over: the child need not keep it."""
        worker = self._pool.serving
        if self._known.pop(key, None) is not None and worker is not None and worker.process.connected:
            self._pool.send(worker, pack({"verb": "forget", "keys": [key]}))

    def receive(self) -> list[tuple[str, PolicyAnswer]]:
        """The requests that were decided or have failed since the last call."""
        for worker in self._pool.connected:
            worker.process.flush()
            self._read(worker)
        self._reap(time.monotonic())
        self._send_next()
        done, self._done = self._done, []
        return done

    def timeout(self, now: float) -> float | None:
        """Seconds until `expire()` and `receive()` have something to do; None: only `fileno()` can tell."""
        if self._done or self._pool.is_one_dying:
            return LOOK_SOON
        if self._current is not None:
            return LOOK_BUSY
        deadlines = self._pool.deadlines()
        deadlines += [since + self._limits.queue_seconds for since in self._queue.waits_since()]
        return max(LOOK_SOON, min(deadlines) - now) if deadlines else None

    def expire(self, now: float) -> None:
        """End a child beyond its budget, start one that is due, give up what has waited too long.

        `now` is time.monotonic().
        """
        self._pool.end_late(now)
        self._check_budget(now)
        self._reap(now)
        self._pool.start_due(now)
        for question in self._queue.take_expired(now - self._limits.queue_seconds):
            self._fail(question, f"{CHILD} {self._pool.fault}")

    @property
    def _limits(self) -> ChildLimits:
        return self._pool.limits

    # What a child may cost, and what its death means.

    def _check_budget(self, now: float) -> None:
        worker = self._pool.serving
        if worker is not None and self._current is not None and now - self._current.sent_at > self._wall(self._current):
            self._read(worker)  # joblensd itself may have stood still: what has been answered is in time
        current = self._current
        if worker is None or current is None or not worker.process.connected:
            return
        if worker.process.cpu_seconds() - current.cpu_at > 2 * current.share * self._limits.cpu_seconds:
            worker.end(self._beyond_cpu(current))  # its own timer should have ended it: it is not itself
        elif now - current.sent_at > self._wall(current):
            worker.end(f"took more than {self._wall(current):g} s")

    def _wall(self, current: PolicyRequest) -> float:
        """Seconds that a request may take."""
        return current.share * self._limits.wall_seconds

    def _beyond_cpu(self, current: PolicyRequest | None) -> str:
        share = 1.0 if current is None else current.share
        return f"took more than {share * self._limits.cpu_seconds * 1000:g} ms of CPU"

    def _reap(self, now: float) -> None:
        death = self._pool.reap(now)
        if death is None:
            return
        self._known.clear()
        current, self._current = self._current, None
        if death.is_wanted:
            self._put_back(current)
            self._pool.replace(now)
        else:
            if isinstance(current, JobRequest) and current.doing.startswith(ENTRY):
                for line in self._entry_failures.killed(current.doing[len(ENTRY) :], current.request.person, now):
                    self._log(line)
            self._bury(death, current)
            self._replace_dead(current, now)

    def _bury(self, death: Death, current: PolicyRequest | None) -> None:
        """What the child had to do has failed."""
        worker = death.worker
        blamed = current.doing if current is not None else worker.loading if not worker.ready else CHILD
        fault = self._pool.fault = worker.fault or self._cause(death.code, blamed, current)
        if isinstance(current, JobRequest):
            self._fail(current, f"{blamed} {fault}")
            self._without(self._active.killed(blamed, current.key, current.request.person, fault))
        elif current is not None:
            self._active.complain(f"{blamed} {fault}: each of them is decided anew")
        elif not worker.ready:
            self._active.complain(f"{blamed} {fault}: no policies are in force")

    def _replace_dead(self, current: PolicyRequest | None, now: float) -> None:
        """Deaths slow the next start, but one owner's only once: else others would wait for what his jobs do."""
        if isinstance(current, JobRequest) and self._owner_failures.killed(current.request.owner, now) > 1:
            self._pool.replace(now)
        else:
            self._pool.replace_after_failure(now)

    def _put_back(self, current: PolicyRequest | None) -> None:
        if isinstance(current, JobRequest):
            current.doing = THE_AD
            self._queue.put_back(current)

    def _cause(self, code: int, blamed: str, current: PolicyRequest | None) -> str:
        if code == -signal.SIGPROF:
            return self._beyond_cpu(current)
        names = {-number.value: number.name for number in signal.Signals}
        how = names.get(code, f"exit code {code}")
        return f"ended ({how})" if blamed == CHILD else f"killed the policy child ({how})"

    def _without(self, set_aside: bool) -> None:
        """Where a file was set aside, a child that has not loaded it goes on."""
        if set_aside:
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._owner_failures.forgive()
        self._pool.begin_anew()

    # Requests and replies.

    @property
    def _is_free(self) -> bool:
        worker = self._pool.serving
        return worker is not None and worker.process.connected and worker.ready and self._current is None

    def _send_next(self) -> None:
        while self._is_free and self._queue:
            question, has_spare = self._queue.take(), self.spare_pid is not None
            why = self._owner_failures.refuses(question.request.owner, time.monotonic(), has_spare)
            if why:
                self._fail(question, why)
            else:
                self._send(question)

    def _send(self, current: PolicyRequest) -> None:
        worker = self._pool.serving
        assert worker is not None
        self._current = current
        self._number += 1
        current.sent_at, current.cpu_at = time.monotonic(), worker.process.cpu_seconds()
        budget: Message = {"id": self._number, "cpu": current.share * self._limits.cpu_seconds}
        budget["entries"] = self._entry_failures.evaluated(current.request.expressions, current.sent_at)
        self._pool.send(worker, current.frame(budget))

    def _read(self, worker: PolicyChild) -> None:
        try:
            for message in worker.process.receive():
                self._take(worker, message)
        except BadFrame as error:
            worker.end(f"made the policy child answer nonsense ({printable(str(error), 60)})")
        self._pool.watch(worker)

    def _take(self, worker: PolicyChild, message: Message) -> None:
        if not worker.ready:
            worker.take_early(message)
            for line in worker.errors:
                self._active.complain(f"policy set aside: {line}")
            return
        verb, current = message.get("verb"), self._current
        if worker is not self._pool.serving or current is None or message.get("id") != self._number:
            raise BadFrame("an answer that nobody asked for")
        if verb == "doing":
            current.doing = policy_answers.doing(message)
        elif isinstance(current, RoundRequest):
            self._take_answers(current, message)
        elif verb == "decided":
            self._take_decision(current, message)
        elif verb == "failed":
            failed = policy_answers.failed(message, current.request)
            self._finish()
            self._done.append((current.key, failed))
        else:
            raise BadFrame("an unknown verb")

    def _take_decision(self, current: JobRequest, message: Message) -> None:
        decided = policy_answers.decided(message, current.request)
        person = current.request.person
        if current.request.keep:
            self._known[current.key] = _KnownJob(person, _files_of(decided.errors))
        self._finish()
        self._done.append((current.key, decided))
        self._without(self._active.decided(current.key, person, decided.errors))

    def _take_answers(self, current: RoundRequest, message: Message) -> None:
        answers, unknown = message.get("answers"), message.get("unknown")
        if message.get("verb") != "decided_many" or not isinstance(answers, dict) or not isinstance(unknown, list):
            raise BadFrame("no answers")
        for key, answer in answers.items():
            if key not in current.keys or not isinstance(answer, dict):
                raise BadFrame("an answer about a job that nobody asked about")
            decided = policy_answers.decided(answer, current.request)
            self._done.append((key, decided))
            if key in self._known:
                self._known[key].failing = _files_of(decided.errors)
        for key in unknown:
            self._known.pop(str(key), None)
        if not message.get("more"):
            self._finish()
            # of a job with the same answer as before nothing is told: what failed then has failed again
            jobs = {key: self._known[key] for key in current.keys if key in self._known}
            failed: dict[str, list[str]] = {}
            for key, job in jobs.items():
                for file in job.failing:
                    failed.setdefault(file, []).append(key)
            persons = {key: job.person for key, job in jobs.items()}
            self._without(self._active.decided_many(persons, failed))

    def _finish(self) -> None:
        self._current = None
        self._pool.worked(time.monotonic())

    def _fail(self, question: JobRequest, why: str) -> None:
        self._done.append((question.key, policy_answers.failure(why, question.request)))
