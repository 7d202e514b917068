"""How the sentence begins that says why a job died."""

from __future__ import annotations

BY_HTCONDOR = "ended by HTCondor"
"""The job was removed, held or evicted. The node is not told which."""
