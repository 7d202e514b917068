"""notify: root, or the owner of a job, tells a running job something. It is a line in a file of its scratch folder.

Whether the job reads it, nobody knows. The line has who has said it, and when; what is said is not in joblensd's log.
"""

from __future__ import annotations

import time

from condor_joblens.commands import authority, find_run
from condor_joblens.commands.authority import asker, payer
from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.common import redact
from condor_joblens.common.errors import printable
from condor_joblens.control.audit import Audit
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Refused, Request


def begin(node: NodeProtocol, audit: Audit, request: Request, stream: Stream) -> None:
    """Finds the run, checks who asks, and writes it. Raises Refused."""
    try:
        audit.pace(payer(request))
        run = find_run.of(node, request)
        authority.check(node, request, run)
        if why := node.notify(run, _line(request)):
            raise Refused(why)
    except Refused as refused:
        job = printable(request.arguments["job"], 60)
        audit.refused(payer(request), f"job {job}: {asker(request)} asked for notify, and was refused: {refused}")
        raise
    audit.granted(f"{node.describe(run)}: {asker(request)} asked for notify")
    stream.end({})


def _line(request: Request) -> bytes:
    """What is said, as it was typed but for what could end the line or fool a terminal; the time is UTC."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return f"{when} {asker(request)}: {redact.printable(request.arguments['text'])}\n".encode()
