"""What `make demo` shows in its running pool: nine jobs from the submit file to condor_history, each step in words.

python3 demo_show.py POOL; ends with 1, and lines that say why, where a number is missing or off by more than 1 %.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Optional

from harness import SCRIPTS, Ad, Pool
from hub_pages import HubPages

FLAME = "flame.svg"
KEPT = Path(__file__).parents[2] / "build" / "demo" / FLAME
JOBS = "/usr/src/condor_joblens/tests/pool/demo_jobs"  # as the pool sees them
FORMATS = "/usr/share/joblens/print_formats"
NUMBERS, TOLERANCE = 12, 0.01
ALL_JOBS = 9
WAITING = 2
TCP_SECONDS = 5  # so often joblensd looks at open connections: oftener, their rates would jump
RUNNING, SIGSEGV = 2, 11
FIT_DIED = "fit exited 1: LookupError: no calibration of run 4711 (fit:"
WIDTH = 105  # of text: that of the widest table
BOLD, PLAIN = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")


class Number(NamedTuple):
    """A number of a job: as the job printed it, and as its ad in condor_history has it."""

    job: str
    name: str
    own: float
    seen: Optional[float]

    @property
    def difference(self) -> float:
        """Relative to the job's own; infinite where there is nothing to compare."""
        return float("inf") if self.seen is None else (self.seen - self.own) / self.own

    def line(self) -> str:
        """The number's line in the table."""
        seen = "missing" if self.seen is None else f"{self.seen:,.12g}"
        difference = f"{self.difference:+.4%}" if self.difference else "none"
        return f"{self.job:10} {self.name:32} {self.own:>16,.12g} {seen:>16} {difference:>11}"


def main(pool: Pool) -> int:
    """Show everything; returns the exit code."""
    submit(pool)
    wait_for_numbers(pool)
    show_live(pool)
    show_lines_of_code(pool)
    return show_final(pool)


# --- saying, showing, waiting ---


def step(heading: str, text: str) -> None:
    """The heading of a step, and what it is about."""
    print(f"\n{BOLD}=== {heading}{PLAIN}\n{textwrap.fill(text, WIDTH)}", flush=True)


def say(text: str) -> None:
    """A paragraph."""
    print(f"\n{textwrap.fill(text, WIDTH)}", flush=True)


def show(pool: Pool, command: str, user: str = "root") -> None:
    """A command as one types it, and what it prints."""
    print(f"\n{BOLD}{user}{'#' if user == 'root' else '$'} {command}{PLAIN}", flush=True)
    subprocess.run([SCRIPTS / "run", "--pool", pool.name, "--as", user, "--", "sh", "-c", command], check=True)


def wait(pool: Pool, condition: Callable[[], bool], what: str | Callable[[], str], seconds: int) -> None:
    """Ask every second; AssertionError where it does not come true in time."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began >= seconds:
            awaited = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {seconds} s for {awaited}, in vain\n{pool.diagnosis()}")
        time.sleep(1)


def ads(pool: Pool, command: str) -> list[Ad]:
    """The ads that condor_q or condor_history prints as JSON."""
    said = pool.run(*command.split(), "-json").stdout
    found: list[Ad] = json.loads(said) if said.strip() else []
    return found


# --- the steps ---


def submit(pool: Pool) -> None:
    """Submit all jobs, and wait until they run."""
    step(
        "4. Two users submit jobs",
        "alice has a CPU burner, a build of a small C program that starts thousands of short processes, and a job "
        "that asks not to be watched; her last one is Python that calls C++, and asks for a profile. bob has a reader "
        "and writer, a transfer over the loopback network, a program that dies by a signal, a script that fails, and "
        "one that hangs; bob asks for level io, to see more of them, and for level trace for the two that fail. They "
        "are submitted on hold and released together, to run at the same time.",
    )
    for user in ("alice", "bob"):
        pool.shell(f"cp {JOBS}/* .", user=user)
    show(pool, "cat alice.sub; condor_submit alice.sub", "alice")
    show(pool, "grep JobLens quiet.sub; condor_submit quiet.sub", "alice")
    show(pool, "grep JobLens match.sub; condor_submit match.sub", "alice")
    show(pool, "grep -A 9 JobLens bob.sub; condor_submit bob.sub", "bob")
    show(pool, "grep JobLens fit.sub; condor_submit fit.sub", "bob")
    show(pool, "condor_release -all")
    say("Waiting for the negotiator, which has a cycle every minute or some seconds after new jobs came ...")
    began = time.monotonic()
    wait(pool, lambda: all(ad["JobStatus"] == RUNNING for ad in ads(pool, "condor_q -all")), "all jobs to run", 180)
    jobs = [f"{ad['ClusterId']}.{ad['ProcId']} {name(ad)}" for ad in ads(pool, "condor_q -all")]
    print(f"All run, {time.monotonic() - began:.0f} s after the release: {', '.join(jobs)}.", flush=True)


def wait_for_numbers(pool: Pool) -> None:
    """Wait until all jobs have their first numbers in the queue."""
    step(
        "5. The way of the numbers",
        "Now the kernel counts, joblensd takes the numbers once a second, and each job's starter and shadow carry "
        "them to the queue: 8 s after the start for the first time, and at the shadow's interval of 15 s.",
    )
    say("Waiting for them ...")
    wait(pool, lambda: all("JobLensUsage" in ad for ad in ads(pool, "condor_q -all")), "numbers in condor_q", 90)
    jobs = ads(pool, "condor_q -all")
    assert len(jobs) == ALL_JOBS, f"a job ended too early\n{pool.diagnosis()}"
    age = time.time() - min(ad["JobCurrentStartDate"] for ad in jobs)
    print(f"All jobs have numbers in condor_q, {age:.0f} s after the first of them started.", flush=True)


def show_live(pool: Pool) -> None:
    """The views of running jobs."""
    step(
        "6. What a user sees while the jobs run",
        "condor_q, with a print format of ours. CORES are those in use, of those that were asked for. USED is the "
        "memory of all processes now, PEAK the most that a single one has had. AGE is how old the numbers are.",
    )
    show(pool, f"condor_q -allusers -wide -pr {FORMATS}/condor_q.cpf", "alice")
    step(
        "7. What an administrator sees on the execute node",
        "joblens top reads joblensd's shared memory, without HTCondor in between. On a terminal it is a live screen; "
        "here are three refreshes of it, with rates a second.",
    )
    show(pool, f"joblens top -n 3 -d {TCP_SECONDS} | cat")
    say("The same numbers for Prometheus, from an unprivileged process (an excerpt):")
    show(pool, "curl -s http://127.0.0.1:9753/metrics | grep -E '^joblens_job_(cpu_recent|tcp_sent)'")
    show_slots(pool)
    step(
        "8. One job in words and bars",
        "The reader and writer, which is watched at level io: calls by class, files by file system, and for what it "
        "waited. And which policy decided so.",
    )
    reader = job_id(pool, "files")
    show(pool, f"joblens job {reader}")
    show(pool, f"joblens policy explain {reader}")
    say("A running job's level can be changed by hand, by root or its owner. The build of alice, for half a minute:")
    build = job_id(pool, "compile")
    show(pool, f"joblens level {build} io --for 30s", "alice")
    wait(pool, lambda: looked_at_closely(pool, build), "the numbers of level io", 30)
    show(pool, f"joblens job {build}")


def show_slots(pool: Pool) -> None:
    """The slots' ads: the collector's, or the startd's own where the collector has no numbers yet."""
    say(
        "And in the slots' ads, for the whole pool: a job's first numbers come at once, later ones with the startd's "
        "own update every five minutes, so that the collector has no more work than before."
    )
    asked = "condor_status"
    if not any("JobLensUsage" in ad for ad in ads(pool, asked)):
        say("(HTCondor before 24.0.18 sends the first ones with that update too. Here the startd itself is asked.)")
        asked += ' -direct "$(head -n 1 /var/log/condor/.startd_address)"'
    show(pool, f"{asked} -wide -pr {FORMATS}/condor_status.cpf")


def show_lines_of_code(pool: Pool) -> None:
    """A flame graph of the job that asked for a profile, and why the one that hangs does so."""
    step(
        "9. Where a job spends its time, and why another one hangs",
        "alice's job runs Python and C++. Which functions take its time, and which lines of Python? The program was "
        "not prepared for that: it has no frame pointers and no debug information.",
    )
    busy = job_id(pool, "match")
    usage = on_node(pool, busy)  # on a busy machine it has ended by now
    if usage["Level"] == "profile":
        ask = ("joblens", "flame", busy, "-o", FLAME)
        wait(pool, lambda: pool.run(*ask, user="alice", check=False).returncode == 0, "a profile", 60)
        show(pool, f"joblens hot {busy} -n 6", "alice")
        say("And which lines of her own program, with all that they call?")
        show(pool, f"joblens hot {busy} --by line --total -n 40 | grep -e LINE -e match:", "alice")
        show(pool, f"joblens flame {busy} -o {FLAME}", "alice")
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(pool.root / "home" / "alice" / FLAME, KEPT)
        say("The picture has C++ and Python in one, with zoom and search. It is kept: open it in a browser.")
        print(f"file://{KEPT}", flush=True)
    else:
        say(f"(This machine can't take profiles, so there is no picture: {usage.get('Note')})")
    say("One of bob's jobs does nothing any more. Why? The node tells its owner, and nothing is stopped for that:")
    show(pool, f"joblens hang {job_id(pool, 'stuck')}", "bob")


def show_deaths(pool: Pool) -> None:
    """Of what two jobs died, and what they did before that."""
    say(
        "Two of bob's jobs died. An exception ended the script: its ad has the exception with file and line, and the "
        "node has the whole traceback. The script was not changed for that."
    )
    script = job_id(pool, "fit")
    show(pool, f"condor_history {script} -af JobLensUsage.Death", "bob")
    wait_until_kept(pool, "joblens", "crash", script)
    show(pool, f"joblens crash {script}", "bob")
    say(
        "And before that? The kernel has recorded what jobs at level trace did in their last seconds, overwriting what "
        "was older. joblensd has looked at it only when they had died. What Python itself opens is left out here: it "
        "opens much for the traceback that it prints."
    )
    pythons = "grep -v -e /usr/lib/python3 -e '<unknown>'"
    for program in ("fit", "crash"):
        ad = next(ad for ad in ads(pool, "condor_history") if name(ad) == program)
        if ad["JobLensUsage"]["Level"] == "trace":
            ask = ("joblens", "job", job_id(pool, program), "--before-death")
            wait_until_kept(pool, *ask)
            show(pool, f"{' '.join(ask)} | {pythons} | tail -n 14", "bob")
        else:
            say(f"(This machine can't record it: {ad['JobLensUsage'].get('Note')})")


def wait_until_kept(pool: Pool, *ask: str) -> None:
    """Wait until bob is answered: what is kept of a death comes some moments after it."""
    wait(pool, lambda: pool.run(*ask, user="bob", check=False).returncode == 0, " ".join(ask), 30)


def show_final(pool: Pool) -> int:
    """The final numbers beside those that the jobs know themselves; returns 1 where something is wrong."""
    step("10. What stays after the end", "Waiting for the jobs to end; each runs for 120 seconds ...")
    wait(pool, lambda: not ads(pool, "condor_q -all"), "the jobs to end", 180)
    wait(pool, lambda: len(ads(pool, "condor_history")) == ALL_JOBS, "all jobs in condor_history", 30)
    show(pool, f"condor_history -wide -pr {FORMATS}/condor_history.cpf", "alice")
    show_deaths(pool)
    jobs = sorted(ads(pool, "condor_history"), key=lambda ad: (ad["ClusterId"], ad["ProcId"]))
    numbers = [number for ad in jobs for number in compare(pool, ad)]
    say(
        "Are they right? Each job wrote down at its end what it knows about itself: CPU time and peak memory from "
        "getrusage(), bytes from /proc/self/io, what it sent and received and started from its own counting."
    )
    print(f"\n{BOLD}{'JOB':10} {'NUMBER':32} {'THE JOB SAYS':>16} {'CONDOR_HISTORY':>16} {'DIFFERENCE':>11}{PLAIN}")
    print("\n".join(number.line() for number in numbers))
    wrong = [line for ad in jobs for line in complaints(ad)]
    if os.environ.get("HUB"):
        wrong += show_hub(pool, HubPages(os.environ["HUB"]), jobs)
    wrong += [f"{x.job}: {x.name} is off by more than 1 %" for x in numbers if abs(x.difference) > TOLERANCE]
    if len(numbers) != NUMBERS:
        wrong.append(f"the jobs wrote down {len(numbers)} numbers instead of {NUMBERS}: one of them failed")
    if wrong:
        print("".join(f"\nWRONG: {line}" for line in wrong))
        return 1
    say("Yes: all agree within 1 %, each job's last ad is final, and the job that asked for level off has no numbers.")
    lost = max(ad["JobLensUsage"]["Lost"] for ad in jobs)
    if lost:
        say(
            f"Complete is false in the ads nevertheless: on this busy machine the kernel left {lost} events uncounted, "
            "and cannot tell whether they were these jobs'."
        )
    return 0


def show_hub(pool: Pool, pages: HubPages, jobs: list[Ad]) -> list[str]:
    """The same jobs on the hub, as the shifter sees them; what is wrong there."""
    watched = {f"{ad['ClusterId']}.{ad['ProcId']}": ad for ad in jobs if "Cpu" in ad["JobLensUsage"]}
    wait(pool, lambda: len(pages.jobs("ended")) >= len(watched), "the last records of all jobs on the hub", 60)
    seen, expected = pages.jobs("ended"), {name(ad): kept_of(ad) for ad in jobs}
    shown: dict[str, set[str]] = {}

    def are_there() -> bool:
        # what is there already is not asked for again: a viewer has a share of the store's time
        for row in seen.values():
            if row["Executable"] not in shown or not expected[row["Executable"]] <= shown[row["Executable"]]:
                shown[row["Executable"]] = pages.artifacts(row["Run"])
        return all(kinds <= shown.get(program, set()) for program, kinds in expected.items())

    say("And on the hub's pages, as the shifter sees them. A job's page leads to what was kept of it:")
    wait(pool, are_there, lambda: f"{expected} on the pages of jobs, where there is {shown}", 120)
    print(f"\n{BOLD}{'JOB':8} {'OWNER':8} {'PROGRAM':10} {'HEALTH':10} {'KEPT':40} WHY{PLAIN}")
    for row in sorted(seen.values(), key=lambda row: str(row["JobId"])):
        kept = ", ".join(sorted(shown[row["Executable"]]))
        print(f"{row['JobId']:8} {row['Owner']:8} {row['Executable']:10} {row['Health']:10} {kept:40} {row['Why']}")
    return show_waiting(pool, pages) + [
        f"{name(ad)}: the hub has {seen.get(job, {}).get('CpuSeconds')} CPU seconds, not those of condor_history"
        for job, ad in watched.items()
        if seen.get(job, {}).get("CpuSeconds") != ad["JobLensUsage"]["Cpu"]["Seconds"]
    ]


def show_waiting(pool: Pool, pages: HubPages) -> list[str]:
    """Jobs that wait, in condor_q and on the hub; what is wrong there."""
    step(
        "11. Jobs that wait",
        "No node knows of them. joblens-eventlog follows the access point's event log, and tells the hub when jobs "
        "are submitted, held, released, transferred and over. Neither of these fits a machine; alice holds one.",
    )
    show(pool, "cat waits.sub; condor_submit waits.sub", "alice")
    show(pool, "condor_hold -constraint 'JobPrio == 1' -reason 'no calibration of run 4712 yet'", "alice")
    states = {1: "idle", 5: "held"}
    queue = {ad["GlobalJobId"]: states[ad["JobStatus"]] for ad in ads(pool, "condor_q -all")}

    def on_hub() -> dict[str, str]:
        rows = [row for state in states.values() for row in pages.ask(f"/api/v1/queued?state={state}")["jobs"]]
        return {row["GlobalJobId"]: row["State"] for row in rows if row["GlobalJobId"] in queue}

    wait(pool, lambda: on_hub() == queue, f"{queue} on the hub", 60)
    print(f"\n{BOLD}{'JOB':8} {'STATE':6} WHY{PLAIN}")
    for row in [row for state in states.values() for row in pages.ask(f"/api/v1/queued?state={state}")["jobs"]]:
        print(f"{row['JobId']:8} {row['State']:6} {row['Why']}")
    return [] if len(queue) == WAITING else [f"{len(queue)} jobs wait instead of {WAITING}"]


def kept_of(ad: Ad) -> set[str]:
    """The artifacts that a job of the demo has: of a job that was not watched so closely here, none."""
    level = ad["JobLensUsage"].get("Level")
    return {
        "match": {"profile"} if level == "profile" else set(),
        "stuck": {"hang"},
        "fit": {"traceback", "recorder"} if level == "trace" else {"traceback"},
        "crash": {"recorder"} if level == "trace" else set(),
    }.get(name(ad), set())


# --- what is compared ---


def job_id(pool: Pool, program: str) -> str:
    """The job of that program, in the queue or in the history."""
    found = next(ad for ad in ads(pool, "condor_q -all") + ads(pool, "condor_history") if name(ad) == program)
    return f"{found['ClusterId']}.{found['ProcId']}"


def looked_at_closely(pool: Pool, job: str) -> bool:
    """Whether the node has numbers of level io of the job."""
    return "Syscall" in on_node(pool, job)


def on_node(pool: Pool, job: str) -> Ad:
    """What the node knows of the job, or knew at its end."""
    usage: Ad = json.loads(pool.run("joblens", "job", job, "--json").stdout)["Job"]["JobLensUsage"]
    return usage


def name(ad: Ad) -> str:
    """The job's name: that of its program."""
    return Path(str(ad["Cmd"])).name


def compare(pool: Pool, ad: Ad) -> list[Number]:
    """What the job printed, lines of a name and a number, beside its ad."""
    output = pool.root / "home" / str(ad["Owner"]) / f"{name(ad)}.out"
    lines = output.read_text().splitlines() if output.exists() else []
    return [Number(name(ad), line.split()[0], float(line.split()[1]), lookup(ad, line.split()[0])) for line in lines]


def lookup(ad: Ad, path: str) -> Optional[float]:
    """A number of the ad's JobLensUsage by its path, such as Cpu.Seconds; None where it is not there."""
    found: Any = ad.get("JobLensUsage", {})
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return None if found is None else float(found)


def complaints(ad: Ad) -> list[str]:
    """What is wrong with a final ad, apart from its numbers."""
    usage = ad.get("JobLensUsage", {})
    if name(ad) == "sleep":
        return ["sleep: it asked for level off, and has numbers"] if "Cpu" in usage else []
    wrong = []
    if usage.get("Final") is not True:
        wrong.append(f"{name(ad)}: its last ad did not come")
    if usage.get("Complete") is not True and not usage.get("Lost"):
        wrong.append(f"{name(ad)}: its numbers are not complete: {usage.get('Note')}")
    if name(ad) == "crash" and (ad.get("ExitSignal") != SIGSEGV or "SIGSEGV" not in usage.get("Death", "")):
        wrong.append(f"crash: it did not die by SIGSEGV, or its ad does not say so: {usage.get('Death')}")
    if name(ad) == "fit" and not usage.get("Death", "").startswith(FIT_DIED):
        wrong.append(f"fit: its ad does not have the exception that ended it: {usage.get('Death')}")
    if ad["Owner"] == "bob" and "Syscall" not in usage:
        wrong.append(f"{name(ad)}: it asked for level io, and has no such numbers: {usage.get('Note')}")
    return wrong


if __name__ == "__main__":
    try:
        sys.exit(main(Pool(sys.argv[1], "")))
    except (AssertionError, subprocess.CalledProcessError) as error:
        sys.exit(f"\nWRONG: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
