"""say: a job says how far it is. A process in the run's slot, of the job's user, is believed for its own run alone.

It is the job's own word, which nobody checks. It stands in the row, and goes into the ad with the next numbers.
"""

from __future__ import annotations

import re

import numpy as np

from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.common.errors import printable
from condor_joblens.control.verbs import MOST_SAID, Refused, Request
from condor_joblens.model.metrics import cut, text

_SAID = re.compile(r"(?:([0-9.]+ %)(?:: |$))?(.*)", re.DOTALL)
"""Share and words of what was said before, as `_joined` has put them together."""


def find(node: NodeProtocol, request: Request) -> int:
    """The run in whose slot the calling process is. Raises Refused."""
    return node.run_of_process(request.pid, "", "")


def answer(node: NodeProtocol, request: Request, run: int) -> dict[str, str]:
    """Keeps what is said; of share and words the one that is not said now stays. Tells what it is now."""
    rows, share, words = node.runs.rows, request.arguments.get("share"), request.arguments.get("words")
    if share is None and words is None:
        raise Refused("nothing is said: say words, a share, or both")
    keep(rows, run, share, words)
    return {"progress": text(rows["progress"][run])}


def keep(rows: np.ndarray, run: int, share: float | None, words: str | None) -> None:
    """The run's row has it from now on; of share and words the one that is None stays."""
    before = _SAID.fullmatch(text(bytes(rows["progress"][run])))
    assert before is not None  # it takes anything
    rows["progress"][run] = cut(
        _joined(
            before[1] or "" if share is None else f"{100 * share:.1f} %".replace(".0 %", " %"),
            before[2] if words is None else printable(words, MOST_SAID),
        ),
        "progress",
    )


def _joined(share: str, words: str) -> str:
    return f"{share}: {words}" if share and words else share or words
