"""Who may ask for what. This table is the only one, and every request is checked against it before its command runs.

Nothing here decides how far a caller may go. For a level, the level arbiter does (agent/levels/level_arbiter.py): an
owner only raises it, and only up to the caps.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.common.errors import printable
from condor_joblens.common.user_names import NAMES, nobodys
from condor_joblens.control.verbs import Payer, Refused, Request
from condor_joblens.model.metrics import text
from condor_joblens.shm.artifacts import StoredArtifact


class Caller(enum.Flag):
    """Who a process is to the run that it asks about."""

    ROOT = enum.auto()
    OWNER = enum.auto()
    """The user as whom the job runs."""
    WRAPPER = enum.auto()
    """A process of the job's user in the run's own slot, as the wrapper is."""
    VOUCHED = enum.auto()
    """The job's user from afar, or a queue super user: the job's access point vouches for him (commands/warrant.py)."""
    STAFF = enum.auto()
    """One of the site's staff from afar, if his line in JOBLENS_STAFF_KEYS has the verb, the user and the job."""
    ANYBODY = enum.auto()
    """Whoever brings what somebody else has signed: an access point a warrant, or the site's server a list of entries.

    What may be done is in that. How far an entry goes is in agent/levels/ranks.py.
    """


MAY = {
    "activate": Caller.WRAPPER,
    "say": Caller.WRAPPER,
    "raised": Caller.WRAPPER,
    "variables": Caller.WRAPPER,
    "python": Caller.WRAPPER,
    "level": Caller.ROOT | Caller.OWNER | Caller.VOUCHED,
    "watch": Caller.ROOT | Caller.OWNER,
    "ask": Caller.ROOT,
    "evidence": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "artifacts": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "last": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "ps": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "tail": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "head": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "cat": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "ls": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "log": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "get": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "env": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "peek": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "node": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "notify": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "kill": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "trace": Caller.ROOT | Caller.OWNER | Caller.VOUCHED | Caller.STAFF,
    "warrant": Caller.ANYBODY,
    "entries": Caller.ANYBODY,
    "preview": Caller.ANYBODY,
}
"""Each verb, and who may ask for it. A verb that is missing here nobody may ask for."""


def check(node: NodeProtocol, request: Request, run: int) -> None:
    """Returns if the caller may do this to the run. Raises Refused with who may."""
    may = MAY.get(request.verb, Caller(0))
    if request.vouched is not None:
        check_vouched(request.verb, by_staff=request.vouched.is_staff)
        if request.vouched.run == run:
            return
        raise Refused("the job's access point has vouched for another run")
    if Caller.ROOT in may and request.uid == 0:
        return
    if Caller.OWNER in may and is_owner(node, request, run):
        return
    if Caller.WRAPPER in may:
        _check_wrapper(node, request, run)
        return
    raise Refused(_who(may))


def check_vouched(verb: str, *, by_staff: bool) -> None:
    """Returns if an access point can vouch for who asks for this, or if it is done for staff. Raises Refused."""
    may = MAY.get(verb, Caller(0))
    if by_staff and Caller.STAFF not in may and Caller.VOUCHED in may:
        raise Refused(f"{verb} is not done by a staff key: say it by an entry (joblens control)")
    if Caller.VOUCHED not in may:
        raise Refused(f"{printable(verb, 20)} is not done from afar: ask on the job's node")


def owner(node: NodeProtocol, run: int) -> int:
    """The user id as whom things are done in the run for its owner. Raises Refused if that is not his alone."""
    sandbox = node.sandbox(run)
    if sandbox is None:
        raise Refused("nobody knows as whom the job runs")
    if sandbox.scratch_uid in (0, *nobodys()):
        raise Refused(f"the job runs as {name_of(sandbox.scratch_uid)}: nothing is done in it from afar")
    return int(sandbox.scratch_uid)


def check_artifacts(node: NodeProtocol, request: Request, found: Sequence[StoredArtifact]) -> None:
    """The same for artifacts, whose run may be over. Raises Refused with who may."""
    may = MAY.get(request.verb, Caller(0))
    if request.vouched is not None:
        check_vouched(request.verb, by_staff=request.vouched.is_staff)
        number = int(node.runs.rows["run_number"][request.vouched.run])
        if all(stored.run_number == number for stored in found):
            return
        raise Refused("the job's access point has vouched for another run")
    if Caller.ROOT in may and request.uid == 0:
        return
    alike = {(stored.run_number, stored.uid, stored.owner): stored for stored in found}.values()
    if Caller.OWNER in may and alike and all(owns(node, request, stored) for stored in alike):
        return
    raise Refused(_who(may))


def owns(node: NodeProtocol, request: Request, stored: StoredArtifact) -> bool:
    """Whether the artifact's job runs or ran as the caller.

    After the run, jobs of somebody else can run as the same user, e.g. as the slot's. So then the user must also have
    the name of the job's owner. If no startd has confirmed the run, that is whom the job's own ad names. A job that
    lies shows its own things to its own user alone.
    """
    if stored.uid is None or stored.uid != request.uid or request.uid in nobodys():
        return False
    living = node.runs.living()
    runs = living[node.runs.rows["run_number"][living] == stored.run_number].tolist()
    owner = stored.owner or stored.claimed_owner
    return any(is_owner(node, request, run) for run in runs) or name_of(request.uid) == owner


def _who(may: Caller) -> str:
    """Without the job's id: a slot's name, say, is not to tell whose job runs there."""
    return f"only {' and '.join(word for caller, word in _WORDS.items() if caller in may) or 'nobody'} may do this"


_WORDS = {Caller.ROOT: "root", Caller.OWNER: "the user as whom the job runs"}


def is_owner(node: NodeProtocol, request: Request, run: int) -> bool:
    """Whether the run's job runs as the caller. False if nobody knows as whom it runs."""
    sandbox = node.sandbox(run)
    return sandbox is not None and request.uid == sandbox.scratch_uid and request.uid not in nobodys()


def _check_wrapper(node: NodeProtocol, request: Request, run: int) -> None:
    """The process is in the run's cgroup, by which the run was found; the other signs must agree. Raises Refused."""
    claimed = request.arguments.get("slot", "")
    if claimed and claimed.partition("@")[0] != text(node.runs.rows["slot"][run]):
        raise Refused("this process is in another slot")
    sandbox = node.sandbox(run)
    if sandbox is not None and request.uid != sandbox.scratch_uid:
        raise Refused("this process is not the job's user's")


def payer(request: Request) -> Payer:
    """Whose places, pace and CPU it takes: the user's own, or of the staff each one's, whatever that user does.

    Super users have theirs together, for each user's jobs: the access point can write any name.
    """
    vouched = request.vouched
    if vouched is None or vouched.is_his_own:
        return request.uid
    return f"staff {vouched.by}" if vouched.is_staff else f"super users, for {vouched.user},"


def asker(request: Request) -> str:
    """Who asks, for people."""
    if request.vouched is not None:
        user, by = printable(request.vouched.user, 100), printable(request.vouched.by, 100)
        if request.vouched.is_staff:
            return f"staff {by} (from afar by his key, for {user})"
        return f"{user} (from afar)" if by == user else f"{by} (from afar, for {user})"
    return name_of(request.uid)


def name_of(uid: int) -> str:
    """The user's name, for people; `user 1000` if it has none."""
    return NAMES.name_of(uid) or f"user {uid}"
