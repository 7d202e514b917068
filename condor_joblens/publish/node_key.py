"""NodeKey in JobLensUsage: the public half of the key by which the node signs its answers to commands from afar.

Two write the attribute: joblensd into the job's ad, and the startd's cron job into the slot's. The startd copies one
over the other. So both say the key: an access point that misses it for a moment would refuse its users' commands.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Sequence

from condor_joblens.common import files

FILE = "node_key.pub"
"""In JOBLENS_RUN_DIR, for everybody: joblensd writes it, and the startd's cron job reads it."""

_KEY = re.compile(rb"[a-z0-9]{1,16}:[A-Za-z0-9+/]{1,128}={0,2}")


def with_key(ads: Sequence[str], key: str) -> list[str]:
    """The ads of classad.usage_ads, each with NodeKey; as they are if `key` is empty."""
    return [f'[NodeKey="{key}";{ad[1:]}' for ad in ads] if key else list(ads)


def put(run_dir: str, key: str) -> None:
    """From now on this is the node's key; empty: it has none. Raises OSError."""
    path = os.path.join(run_dir, FILE)
    if key:
        files.write(path, key.encode())
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def known(run_dir: str) -> str:
    """The node's key; empty if it has none, or the file is none of joblensd's."""
    try:
        file = os.open(os.path.join(run_dir, FILE), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            return ""
        text = opened.read(256)
    return text.decode() if _KEY.fullmatch(text) else ""
