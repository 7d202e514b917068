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
    ads = brisk.wait_ended(cluster)
    # those whose starters have found their last ads: nearly all (test_many_jobs.py)
    known = {f"{cluster}.{ad['ProcId']}" for ad in ads if (ad.get("JobLensUsage") or {}).get("Final")}
    told = json.loads(brisk.run("joblens", "jobs", str(cluster), "--json", user="alice").stdout)
    assert told["States"] == {"ended well": 10, "failed": 4}
    found = {job: cause["Cause"] for cause in told["Causes"] for job in cause["Jobs"]}
    assert set(found) == {f"{cluster}.{process}" for process in range(10, 14)}
    for processes, words in ((range(10, 12), "exited 7"), (range(12, 14), "SIGSEGV in mixed")):
        causes = {found[job] for process in processes if (job := f"{cluster}.{process}") in known}
        assert len(causes) <= 1 and all(words in cause for cause in causes)
    assert all("memory_peak_bytes" in job["Numbers"] for job in told["Jobs"] if job["JobId"] in known)
    listed = json.loads(brisk.run("joblens", "job", str(cluster), "--run-dir", "/nowhere", "--json").stdout)
    names = {each["JobId"] for each in (listed["Job"], *listed["Others"])}
    assert known <= names <= {f"{cluster}.{process}" for process in range(14)} and "Note" not in listed
    page = brisk.run("joblens", "jobs", "--since", "1h", user="alice").stdout
    assert page.splitlines()[0].split(": ", 1)[0].endswith("of alice") or page.startswith("Cluster")
    pair = brisk.run("joblens", "compare", f"{cluster}.0", f"{cluster}.10", user="alice").stdout
    assert " ".join(pair.split()).startswith(f"{cluster}.0 (ended well) beside {cluster}.10 (failed")
    for crashed in known & {f"{cluster}.12", f"{cluster}.13"}:
        compared = brisk.run("joblens", "compare", crashed, "--siblings", user="alice").stdout
        assert compared.startswith(f"{crashed} (failed: SIGSEGV in mixed")
