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


WRAPPERS_PROGRAMS = 2
NEARLY_ALL = 90
"""Jobs of a hundred. With cores of its own a node gets them all; on a virtual machine that shares its cores with others
these can stand still while some jobs end. benchmarks/bench_fairness.py measures the promise: 99 %."""


def test_final_numbers_of_nearly_all_of_a_hundred_jobs_are_in_the_history(pool: Pool) -> None:
    clusters = [pool.submit(DESCRIPTION, user) for user in USERS]
    pool.until(lambda: not any(map(pool.jobs, clusters)), "the jobs to end", seconds=300)

    def ended() -> list[Ad]:
        ads = [ad for cluster in clusters for ad in pool.history(cluster)]
        return ads if len(ads) == EACH * len(USERS) else []

    ads = pool.until(ended, "all of them in the history")
    final = [ad for ad in ads if ad.get("JobLensUsage") and ad["JobLensUsage"]["Final"]]
    print(f"{len(final)} of {len(ads)} jobs have final numbers in the history")
    assert len(final) >= NEARLY_ALL
    unanswered = 0
    for ad in final:
        usage = ad["JobLensUsage"]
        assert usage["Run"] == f"{ad['GlobalJobId']}#1"
        # the shell, seq, and as many programs as the job was asked for
        more = usage["Process"]["Executed"] - 2 - ad["ProcId"]
        # the wrapper's shell and its helper too, if joblensd was not heard within 40 ms
        assert more in (0, WRAPPERS_PROGRAMS)
        assert usage["Process"]["Exited"] == usage["Process"]["Forked"] + 1
        assert usage["Complete"] is (more == 0)
        unanswered += more > 0
    assert unanswered <= EACH * len(USERS) - NEARLY_ALL
