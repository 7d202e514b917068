"""The name under which a job's numbers are in ads. Apart, for the process that knows nothing else of them."""

from __future__ import annotations

ATTRIBUTE = "JobLensUsage"
"""A shadow accepts from the starter whatever ends in `Usage`."""
