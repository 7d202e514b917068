"""What the kernel keeps of a process's connections that did not come about, as model/failures.py has it."""

from __future__ import annotations

import numpy as np

from condor_joblens.model.failures import Failure, Failures, Subject
from condor_joblens.tracer.failed_calls import NANO


def read(record: np.ndarray) -> Failures:
    """The failures in `record` (map_layout.FAILED_CONNECTIONS, shape (1,)), in their order."""
    found = [
        Failure(
            int(last["error"]), Subject.SERVER, int(last["time_ns"]) * NANO,
            address=last["address"].tobytes(), port=int(last["port"]),
        )
        for last in record["last"][0] if last["time_ns"]
    ]  # fmt: skip
    return Failures(tuple(sorted(found, key=lambda failure: failure.time)))
