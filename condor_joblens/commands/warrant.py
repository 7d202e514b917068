"""warrant: a command that comes from afar. The job's access point vouches for who asks; whoever brings it has no say.

Nothing of it is looked at before the signature is found to be good. The key for that is the one that came with the job,
as the startd holds it. Or it is that of one of the site's staff, whose file is read each time (control/staff.py).
What is done then is another verb of this room, for this one run, on the part of the job's user.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from condor_joblens.commands import authority, find_run
from condor_joblens.commands.node_protocol import NodeProtocol, Remote
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import sealed_answers, warrants
from condor_joblens.control.audit import Audit
from condor_joblens.control.frames import Words
from condor_joblens.control.sealed_answers import BadAnswer
from condor_joblens.control.staff import Person, read_staff
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import VERBS, Refused, Request, Vouched, understand
from condor_joblens.control.warrants import BadWarrant, Warrant

Perform = Callable[[Request, Stream], None]
"""Does what is asked for, whatever the verb. Raises Refused."""


class Warrants:
    """The warrants that this node takes, each once."""

    def __init__(self, node: NodeProtocol, audit: Audit, perform: Perform) -> None:
        self._node, self._audit, self._perform = node, audit, perform
        self._acceptance = warrants.Acceptance()

    def begin(self, request: Request, stream: Stream) -> None:
        """Takes what is brought, and has it done. Raises Refused; from when it is taken on, the answer is sealed."""
        job = printable(request.arguments["job"], 60)
        try:
            remote = self._node.remote
            if remote is None:
                raise Refused("this node takes no commands from afar: JOBLENS_REMOTE_COMMANDS is false")
            packet = request.arguments["packet"]
            person = self._person(warrants.staff_key(packet))
            run, warrant = self._taken(request, remote, stream, person)
            if person is None:
                asked = self._asked(request, Vouched(warrant.user, warrant.by, run), warrant)
            else:
                asked = self._asked(request, Vouched(warrant.user, person.name, run, is_staff=True), warrant)
                if why := person.refusal(asked.verb, warrant.user, warrant.run.rpartition("#")[0]):
                    raise Refused(why)
        except Refused as refused:
            who = authority.name_of(request.uid)
            self._audit.refused(request.uid, f"job {job}: {who} brought a warrant, and was refused: {refused}")
            raise
        stream.uid = asked.uid  # whoever carries it has room for other users' commands again
        name = warrants.name_of(warrant)
        self._audit.granted(f"{self._node.describe(run)}: {authority.asker(asked)} asks for {asked.verb} by {name}")
        self._perform(asked, stream)

    def _person(self, key: bytes) -> Person | None:
        """Who of the staff has this key; None if there is none. Raises Refused."""
        if not key:
            return None
        try:
            person = read_staff(self._node.config.staff_keys).get(key)
        except JobLensError as error:
            raise Refused(f"no key of the staff counts here: {error}") from None
        if person is None:
            raise Refused("this key is none of the site's staff on this node")
        return person

    def _taken(self, request: Request, remote: Remote, stream: Stream, person: Person | None) -> tuple[int, Warrant]:
        """The run, and its warrant. Raises Refused, which nobody can seal."""
        run = find_run.named(self._node, request)
        meant, key = remote.meant(run)
        packet = request.arguments["packet"]
        try:
            if person is not None:
                key = warrants.staff_key(packet)
                warrant = warrants.verify(packet, key, warrants.staff_start(key))
            else:
                warrant = warrants.verify(packet, key)
            self._acceptance.take(warrant, meant, f"staff {person.name}" if person is not None else "")
            sealer = sealed_answers.Sealer(packet, warrant.sealing_key, remote.key)
        except (BadWarrant, BadAnswer) as bad:
            raise Refused(str(bad)) from None
        verb = VERBS.get(warrant.verb)
        stream.seal(sealer, verb.granted if verb is not None else "")
        return run, warrant

    def _asked(self, request: Request, vouched: Vouched, warrant: Warrant) -> Request:
        """What the warrant asks for, as the job's owner would. Raises Refused."""
        authority.check_vouched(warrant.verb, by_staff=vouched.is_staff)
        owner = authority.owner(self._node, vouched.run)
        words = Words(warrant.verb, {**warrant.arguments, "job": request.arguments["job"].encode()})
        return replace(understand(words, request.pid, owner, 2), vouched=vouched)
