"""What became of many jobs, asked of a real access point by their owner."""

from __future__ import annotations

import json

from harness import Pool

SCRIPT = """\
case $1 in
[0-9]) exit 0 ;;
1[01]) /bin/sh -c 'exit 7' || exit 7 ;;
*) kill -SEGV $$ ;;
esac
"""


def test_the_owner_is_told_what_became_of_the_jobs_of_a_cluster(brisk: Pool) -> None:
    (brisk.root / "home/alice/mixed").write_text(f"#!/bin/sh\n{SCRIPT}")
    brisk.shell("chmod 755 /home/alice/mixed; chown alice: /home/alice/mixed")
    cluster = brisk.submit("executable = mixed\narguments = $(Process)\nqueue 14")
    brisk.wait_ended(cluster)
    told = json.loads(brisk.run("joblens", "jobs", str(cluster), "--json", user="alice").stdout)
    assert told["States"] == {"ended well": 10, "failed": 4}
    found = {cause["Cause"]: cause["Jobs"] for cause in told["Causes"]}
    assert sorted(found.values()) == [[f"{cluster}.10", f"{cluster}.11"], [f"{cluster}.12", f"{cluster}.13"]]
    assert any("exited 7" in cause for cause in found) and any("SIGSEGV in mixed" in cause for cause in found)
    assert all("memory_peak_bytes" in job["Numbers"] for job in told["Jobs"])
    page = brisk.run("joblens", "jobs", "--since", "1h", user="alice").stdout
    assert page.splitlines()[0].split(": ", 1)[0].endswith("of alice") or page.startswith("Cluster")
    compared = brisk.run("joblens", "compare", f"{cluster}.12", "--siblings", user="alice").stdout
    assert compared.startswith(f"{cluster}.12 (failed: SIGSEGV in mixed")
