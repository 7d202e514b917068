"""entries and preview: what the site's server has signed about levels. Whoever brings it has no say.

A list of entries holds from now on. A question about one is answered by numbers of jobs.

Nothing of it is looked at before the signature is found to be good. The key for that is the node's own configuration.
"""

from __future__ import annotations

import json

from condor_joblens.commands import authority
from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.control.audit import Audit
from condor_joblens.control.entries import BadEntries
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Refused, Request


def begin(node: NodeProtocol, audit: Audit, request: Request, stream: Stream) -> None:
    """Takes what is brought. Raises Refused."""
    try:
        node.take_entries(request.arguments["packet"])
    except BadEntries as bad:
        who = authority.name_of(request.uid)
        audit.refused(request.uid, f"{who} brought a list of entries, and was refused: {bad}")
        raise Refused(str(bad)) from None
    stream.end({})


def preview(node: NodeProtocol, audit: Audit, request: Request, stream: Stream) -> None:
    """Counts the jobs for which an entry would be. Raises Refused."""
    try:
        counted = node.count_entry(request.arguments["packet"])
    except BadEntries as bad:
        who = authority.name_of(request.uid)
        audit.refused(request.uid, f"{who} brought a question about an entry, and was refused: {bad}")
        raise Refused(str(bad)) from None
    stream.send(json.dumps(counted).encode())
    stream.end({})
