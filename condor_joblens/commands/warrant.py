"""warrant: a command that comes from afar. The job's access point vouches for who asks; whoever brings it has no say.

Nothing of it is looked at before the signature is found to be good. The key for that is the one that came with the job,
as the startd holds it. What is done then is another verb of this room, for this one run, on the part of the job's user.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from condor_joblens.commands import authority, find_run
from condor_joblens.commands.node_protocol import NodeProtocol, Remote
from condor_joblens.common.errors import printable
from condor_joblens.control import sealed_answers, warrants
from condor_joblens.control.audit import Audit
from condor_joblens.control.frames import Words
from condor_joblens.control.sealed_answers import BadAnswer
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
            run, warrant = self._taken(request, remote, stream)
            asked = self._asked(request, run, warrant)
        except Refused as refused:
            who = authority.name_of(request.uid)
            self._audit.refused(request.uid, f"job {job}: {who} brought a warrant, and was refused: {refused}")
            raise
        stream.uid = asked.uid  # whoever carries it has room for other users' commands again
        name = warrants.name_of(warrant)
        self._audit.granted(f"{self._node.describe(run)}: {authority.asker(asked)} asks for {asked.verb} by {name}")
        self._perform(asked, stream)

    def _taken(self, request: Request, remote: Remote, stream: Stream) -> tuple[int, Warrant]:
        """The run, and its warrant. Raises Refused, which nobody can seal."""
        run = find_run.named(self._node, request)
        meant, key = remote.meant(run)
        packet = request.arguments["packet"]
        try:
            warrant = warrants.verify(packet, key)
            self._acceptance.take(warrant, meant)
            sealer = sealed_answers.Sealer(packet, warrant.sealing_key, remote.key)
        except (BadWarrant, BadAnswer) as bad:
            raise Refused(str(bad)) from None
        verb = VERBS.get(warrant.verb)
        stream.seal(sealer, verb.granted if verb is not None else "")
        return run, warrant

    def _asked(self, request: Request, run: int, warrant: Warrant) -> Request:
        """What the warrant asks for, as the job's owner would. Raises Refused."""
        authority.check_vouched(warrant.verb)
        owner = authority.owner(self._node, run)
        words = Words(warrant.verb, {**warrant.arguments, "job": request.arguments["job"].encode()})
        return replace(understand(words, request.pid, owner, 2), vouched=Vouched(warrant.user, warrant.by, run))
