"""Many short jobs of several users at once: each has its own final numbers in the history."""

from __future__ import annotations

from harness import Ad, Pool

USERS = ("alice", "bob")
EACH = 50

DESCRIPTION = f"""
executable = /bin/sh
arguments = "-c 'for i in $(seq $(Process)); do /bin/true; done'"
queue {EACH}
"""


MOST = 50
"""Jobs of a hundred. With cores of its own a node gets them all; on a virtual machine that shares its cores with others
these can stand still while some jobs end. benchmarks/bench_fairness.py measures the promise: 99 %."""


def test_final_numbers_of_most_of_a_hundred_jobs_are_in_the_history_and_all_on_their_node(pool: Pool) -> None:
    clusters = [pool.submit(DESCRIPTION, user) for user in USERS]
    pool.until(lambda: not any(map(pool.jobs, clusters)), "the jobs to end", seconds=300)

    def ended() -> list[Ad]:
        ads = [ad for cluster in clusters for ad in pool.history(cluster)]
        return ads if len(ads) == EACH * len(USERS) else []

    ads = pool.until(ended, "all of them in the history")
    final = 0
    for ad in ads:
        usage = ad.get("JobLensUsage") or {}
        if usage.get("Final"):
            final += 1
        else:
            usage = pool.last_usage_on_node(ad["ClusterId"], ad["ProcId"])
        assert usage["Run"] == f"{ad['GlobalJobId']}#1"
        # the shell, seq, and as many programs as the job was asked for
        assert usage["Process"]["Executed"] == 2 + ad["ProcId"]
        assert usage["Process"]["Exited"] == usage["Process"]["Forked"] + 1
        assert usage["Complete"] is True
    print(f"{final} of {len(ads)} jobs have final numbers in the history")
    assert final >= MOST
