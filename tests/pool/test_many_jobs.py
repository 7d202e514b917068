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


def test_final_numbers_of_ninety_nine_of_a_hundred_jobs_are_in_the_history(pool: Pool) -> None:
    clusters = [pool.submit(DESCRIPTION, user) for user in USERS]
    pool.until(lambda: not any(map(pool.jobs, clusters)), "the jobs to end", seconds=300)

    def ended() -> list[Ad]:
        ads = [ad for cluster in clusters for ad in pool.history(cluster)]
        return ads if len(ads) == EACH * len(USERS) else []

    ads = pool.until(ended, "all of them in the history")
    final = [ad for ad in ads if ad.get("JobLensUsage") and ad["JobLensUsage"]["Final"]]
    print(f"{len(final)} of {len(ads)} jobs have final numbers in the history")
    assert len(final) >= 99
    for ad in final:
        usage = ad["JobLensUsage"]
        assert usage["Run"] == f"{ad['GlobalJobId']}#1"
        # the shell, seq, and as many programs as the job was asked for
        assert usage["Process"]["Executed"] == 2 + ad["ProcId"]
        assert usage["Process"]["Exited"] == usage["Process"]["Forked"] + 1
        assert usage["Complete"] is True
