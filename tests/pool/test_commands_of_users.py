"""What a user types on an access point: joblens q, joblens history, and the summary in the mail about a job's end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Pool

from condor_joblens.shm import history

MAILER = Path(__file__).resolve().parents[2] / "docs" / "examples" / "joblens_mail"
FAILS = "executable = /bin/sh\narguments = \"-c 'sleep 2; exit 3'\"\n"

RECORDER = """#!/bin/sh
{ printf '%s\\n' "$*"; cat; } >/tmp/mail.new && mv /tmp/mail.new "/tmp/mail.$(date +%s%N)"
"""


def put(pool: Pool, path: str, text: str) -> None:
    file = pool.root / path.lstrip("/")
    file.write_text(text)
    file.chmod(0o755)


@pytest.fixture(scope="module")
def pool(brisk: Pool) -> Iterator[Pool]:
    put(brisk, "/usr/bin/recorder", RECORDER)
    put(brisk, "/usr/bin/joblens_mail", MAILER.read_text().replace("/usr/bin/mail", "/usr/bin/recorder"))
    with brisk.config("MAIL = /usr/bin/joblens_mail\nSENDMAIL ="):
        yield brisk


def test_the_queue_and_the_history_of_a_user(pool: Pool) -> None:
    waits = pool.submit("executable = /bin/sleep\narguments = 600\nqueue")
    held = pool.submit("executable = /bin/sleep\narguments = 600\nhold = true\nqueue")
    pool.wait_running(waits)
    pool.until(lambda: pool.usage(waits), "the first numbers")
    said = pool.run("joblens", "q", user="alice").stdout.splitlines()
    row = next(line.split() for line in said if line.startswith(f"{waits}.0 "))
    assert row[1:3] == ["running", "basic"] and row[-1] == "sleep"
    assert any(line.startswith(f"{held}.0: ") and "hold" in line for line in said), said
    pool.run("condor_rm", str(waits), user="alice")
    pool.wait_ended(waits)
    (job,) = json.loads(pool.run("joblens", "history", str(waits), "--json").stdout)
    assert job["State"] == "removed" and "condor_rm" in job["Reason"] and job["WallSeconds"] > 0
    assert f"{waits}.0" in pool.run("joblens", "history", user="alice").stdout
    refused = pool.run("joblens", "q", user="bob", check=False)
    assert refused.returncode == 1 and "no job of bob" in refused.stderr


def test_the_last_hour_of_a_job_is_kept_for_those_who_may_read_the_rows(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "check_owner", lambda path, status: None)  # the pool's users are not this machine's
    job = pool.submit("executable = /bin/sleep\narguments = 600\nqueue")
    pool.wait_running(job)
    path = pool.root / "run/joblens/history"

    def point() -> float:
        records, _ = history.read(str(path))
        values = [float(each["values"][-1][1]) for each in records if f"#{job}.0#".encode() in bytes(each["run"])]
        return values[0] if values and values[0] == values[0] else 0.0  # NaN: its program has not begun

    assert pool.until(point, "a point of the job") > 4096
    status, rows = path.stat(), (pool.root / "run/joblens/rows").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (rows.st_uid, rows.st_gid, 0o640)
    pool.run("condor_rm", str(job))


def test_the_mail_about_the_end_of_a_job_has_its_final_numbers(pool: Pool) -> None:
    def ended() -> int:
        """A job whose starter has found its last ad, as nearly all do (test_many_jobs.py); 0: it was another one."""
        job = pool.submit(FAILS + "notification = Always\nnotify_user = alice@example.org\nqueue")
        pool.wait_ended(job)
        return job if pool.usage(job).get("Final") else 0

    job = pool.until(ended, "a job with its last numbers")

    def mail() -> str:
        found = [file.read_text() for file in (pool.root / "tmp").glob("mail.[0-9]*")]
        return next((text for text in found if f"Condor Job {job}.0" in text and "\n-- \n" in text), "")

    text = pool.until(mail, "the mail about the job's end", 180)
    assert "alice@example.org" in text.splitlines()[0]
    summary = text.partition("\n-- \n")[2]
    assert f"Job {job}.0 of alice" in summary and "sh exited 3" in summary
    assert "CPU " in summary and "its final numbers did not arrive" not in summary
    assert max(map(len, summary.splitlines())) <= 80


def test_the_example_is_a_program_that_can_be_run() -> None:
    assert os.access(MAILER, os.X_OK)
