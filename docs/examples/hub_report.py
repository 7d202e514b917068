"""Which programs failed of late, and how the worst of them used its memory: hub_report.py ADDRESS [TOKEN]."""

import sys

from hub_client import Hub

hub = Hub(*sys.argv[1:3])
for group in hub.summary(by="executable", state="failed", limit=5):
    print(group["name"] or "not yours to see", "failed", group["failed"], "times")
worst = max(hub.jobs(state="all", columns=["JobId", "Memory.ResidentPeakBytes"]),
            key=lambda job: job.get("Memory.ResidentPeakBytes") or 0)  # fmt: skip
memory = hub.series(worst["Run"], "Memory.ResidentBytes", points=10)["metrics"]["Memory.ResidentBytes"]["max"]
print(worst["JobId"], "used", ", ".join(f"{(value or 0) / 2**30:.1f}" for value in memory), "GiB")
