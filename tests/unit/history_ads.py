"""An access point whose condor_q and condor_history print what a test wants, and ads of jobs to print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BEGAN = 1_795_000_000


def ad(process: int, **more: Any) -> dict[str, Any]:
    """An ad of a job of 40 minutes on cvmfs, as condor_history -json prints it; `more` replaces what it says."""
    seconds = more.pop("seconds", 2400 + 10 * (process % 7))
    cvmfs = more.pop("cvmfs", 0.2)
    usage = {
        "Run": f"ap#5.{process}#1#1", "Level": "io", "LevelNumber": 2, "Final": True, "Complete": True,
        "StartTime": BEGAN, "UpdateTime": BEGAN + seconds,
        "Cpu": {"Seconds": seconds * (1 - cvmfs), "AverageCores": 1 - cvmfs},
        "Memory": {"LargestProcessPeakBytes": (200 + process % 40) << 20},
        "Io": {"CallReadBytes": 3_000_000_000, "CallWriteBytes": 10_000_000},
        "Tcp": {"SentBytes": 0, "ReceivedBytes": 0},
        "Wait": {"RunningSeconds": seconds * (1 - cvmfs), "RunQueueSeconds": 0.0, "UninterruptibleSeconds": 0.0,
                 "SleepSeconds": seconds * cvmfs, "Cvmfs": {"BlockedSeconds": seconds * cvmfs}},
    }  # fmt: skip
    usage.update(more.pop("usage", {}))
    known = {
        "ClusterId": 5, "ProcId": process, "Owner": "alice", "GlobalJobId": f"ap#5.{process}#1", "JobStatus": 4,
        "Cmd": "/home/alice/reco", "ExitCode": 0, "ExitBySignal": False, "RequestCpus": 1, "RequestMemory": 2048,
        "RequestDisk": 1 << 20, "RemoteWallClockTime": float(seconds), "ResidentSetSize_RAW": 100_000,
        "DiskUsage_RAW": 50_000, "JobLensUsage": usage,
    }  # fmt: skip
    return {**known, **more}


def fill(accesspoint: Path, history: list[Any], queue: list[Any] | None = None) -> None:
    (accesspoint / "history.json").write_text(json.dumps(history))
    (accesspoint / "queue.json").write_text(json.dumps(queue or []))
