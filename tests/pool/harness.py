"""A real HTCondor pool of one machine, as an object: the scripts of this folder, with types.

with started("mine") as pool:
    job = pool.submit("executable = /bin/sleep\\narguments = 60\\nqueue", user="alice")
    pool.until(lambda: pool.job(job).get("JobLensUsage"), "the first numbers")
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

SCRIPTS = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("JOBLENS_CACHE", "/var/cache/condor_joblens"))
SITE_CONFIG = "/etc/condor/config.d/99-test.conf"
LIBEXEC = "/usr/libexec/condor"
CHECKOUT = SCRIPTS.parents[1]

NEWEST, OLDEST = "newest", "trixie"
"""Debian suites: HTCondor 25 and 23.9."""

SLOTS_OF_23 = "UPDATE_INTERVAL = 5"
"""A startd of 23.9 that a cron job asks for an update sends its daemon ad alone (ResMgr.h, adlist_updated): a slot's
numbers reach the collector with the startd's own updates, every 300 s in its stock configuration.

Each of these overwrites the jobs' ads, and may come between an end and its starter's look. So it is for tests that wait
for a slot's ad, and for no longer.
"""

REMINDED_SECONDS = 15
"""How long a test waits before the schedd is told to look for jobs that could run.

It keeps a list of them (PrioRec in qmgmt.cpp). Seen on 23.9.6: a claim that the startd no longer knew was refused
("Request was NOT accepted") while the list was made anew, and the job was not in it until another one was submitted,
two minutes later. A priority that is set, even to what it was, has the list made again.
"""

SHARE_OF_WAITING = 2
"""A question that took so long is asked again after so many times as long."""

T = TypeVar("T")
Ad = dict[str, Any]


@dataclass(frozen=True)
class Pool:
    """A running pool with the product installed; its users are root, alice and bob."""

    name: str
    suite: str  # the Debian suite of its root file system, "newest" or a code name

    @property
    def root(self) -> Path:
        """Its root file system, seen from outside."""
        return Path(f"/proc/{(CACHE / 'pools' / self.name / 'pid').read_text().strip()}/root")

    def run(
        self, *command: str, user: str = "root", input: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, its output captured; where it fails, AssertionError with that output."""
        done = subprocess.run(
            [SCRIPTS / "run", "--pool", self.name, "--as", user, "--", *command],
            input=input or "",
            capture_output=True,
            text=True,
        )
        said = f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert done.returncode == 0 or not check, said
        return done

    def shell(self, script: str, user: str = "root") -> str:
        """What a POSIX shell script prints inside."""
        return self.run("sh", "-euc", script, user=user).stdout

    # --- jobs ---

    def submit(self, description: str, user: str = "alice") -> int:
        """Submit jobs; returns their cluster. Their files go to the user's home, named by job id."""
        files = "output = out.$(Cluster).$(Process)\nerror = err.$(Cluster).$(Process)\n"
        said = self.run("condor_submit", "-terse", user=user, input=files + description).stdout
        return int(said.split(".")[0])

    def jobs(self, cluster: int) -> list[Ad]:
        """The ads of a cluster's jobs in the queue; empty when all have left it."""
        return self._ads("condor_q", "-json", str(cluster))

    def job(self, cluster: int) -> Ad:
        """The ad of a cluster's first job: in the queue, else in the history; empty if in neither."""
        return next(iter(self.jobs(cluster) or self.history(cluster)), {})

    def usage(self, cluster: int) -> Ad:
        """JobLensUsage of a cluster's first job, wherever it is; empty until there are numbers in it."""
        usage: Ad = self.job(cluster).get("JobLensUsage") or {}
        return usage if "Process" in usage else {}

    def history(self, cluster: int) -> list[Ad]:
        """The ads of a cluster's jobs that have left the queue."""
        return self._ads("condor_history", "-json", str(cluster))

    def slots(self) -> list[Ad]:
        """The ads of all slots, as the collector has them.

        Of slots that are gone as well: HTCondor takes a slot's ad away when the slot ends, and an update that was under
        way can come after that. So it does above all at a condor_reconfig. Such an ad stays for 15 minutes.
        """
        return self._ads("condor_status", "-json")

    def slots_of_startd(self) -> list[Ad]:
        """The ads of the slots that the startd has now, as it says itself."""
        script = 'condor_status -pool "$(head -n 1 "$(condor_config_val STARTD_ADDRESS_FILE)")" -json'
        return self._ads("sh", "-euc", script)

    def output(self, cluster: int, user: str = "alice", process: int = 0) -> str:
        """What a job has written to its standard output."""
        return (self.root / "home" / user / f"out.{cluster}.{process}").read_text()

    def _ads(self, *command: str) -> list[Ad]:
        said = self.run(*command).stdout
        ads: list[Ad] = json.loads(said) if said.strip() else []
        return ads

    def suspend(self, cluster: int) -> None:
        """Suspend a cluster's first job, until its startd has done so.

        The schedd says that it is done before the startd has heard of it. On a busy machine that may not come, above
        all while the job starts.
        """

        def is_suspended() -> bool:
            return any(
                slot["Activity"] == "Suspended"
                for slot in self.slots_of_startd()
                if slot.get("JobId") == f"{cluster}.0"
            )

        for _ in range(3):
            self.run("condor_suspend", str(cluster), check=False)
            with contextlib.suppress(AssertionError):
                self.until(is_suspended, "the job's slot to be suspended", 30)
                return
        raise AssertionError(f"HTCondor does not suspend job {cluster}")

    # --- waiting: for something to come true, never for a time to pass ---

    def until(self, condition: Callable[[], T], what: str, seconds: float = 120) -> T:
        """Ask until the condition's answer is true, and return it; one that never comes fails the test."""
        end = time.monotonic() + seconds
        reminded = asked = time.monotonic()
        while not (answer := condition()):
            assert time.monotonic() < end, f"waited {seconds:.0f} s for {what}\n{self.diagnosis()}"
            if time.monotonic() - reminded > REMINDED_SECONDS:
                self.run("condor_prio", "+0", "-a", check=False)
                reminded = time.monotonic()
            # who asks is not to take the CPU of whom he waits for: `joblens job` alone takes half a second of it
            time.sleep(min(2, max(0.2, SHARE_OF_WAITING * (time.monotonic() - asked))))
            asked = time.monotonic()
        return answer

    def wait_running(self, cluster: int, processes: int = 1) -> None:
        """Wait until that many of a cluster's jobs run."""

        def running() -> int:
            return sum(job["JobStatus"] == 2 for job in self.jobs(cluster))

        self.until(lambda: running() >= processes, f"job {cluster} to run")

    def wait_ended(self, cluster: int) -> list[Ad]:
        """Wait until all of a cluster's jobs have left the queue; returns their ads from the history."""
        self.until(lambda: not self.jobs(cluster), f"job {cluster} to end")
        return self.until(lambda: self.history(cluster), f"job {cluster} in the history")

    def last_usage(self, cluster: int, process: int = 0) -> Ad:
        """JobLensUsage of a job that has left the queue, as its node knows it.

        The history can lack it. A starter looks for the last numbers once, and on a machine whose cores stand still for
        some milliseconds it looks too early. test_many_jobs.py has how many jobs that may concern.
        """
        self.wait_ended(cluster)
        return self.last_usage_on_node(cluster, process)

    def last_usage_on_node(self, cluster: int, process: int = 0) -> Ad:
        """The same of one that may still be in the queue: it is held, or runs again."""

        def told() -> Ad:
            said = self.run("joblens", "job", f"{cluster}.{process}", "--json", check=False).stdout
            usage: Ad = json.loads(said)["Job"]["JobLensUsage"] if said.strip() else {}
            return usage if usage.get("Final") else {}

        return self.until(told, f"the last numbers of job {cluster}.{process} on its node")

    # --- the node's configuration and logs ---

    @contextlib.contextmanager
    def config(self, lines: str) -> Iterator[None]:
        """The pool with these lines in its configuration, reconfigured now and when the block is left."""
        before = self.site_config()
        self.write_site_config(before + lines + "\n")
        self.run("condor_reconfig")
        try:
            yield
        finally:
            self.write_site_config(before)
            self.run("condor_reconfig")

    def site_config(self) -> str:
        """The test's own lines of the configuration."""
        path = self.root / SITE_CONFIG.lstrip("/")
        return path.read_text() if path.exists() else ""

    def write_site_config(self, text: str) -> None:
        """Others instead of these: whoever reads meanwhile reads the old or the new ones, never half of them."""
        path = self.root / SITE_CONFIG.lstrip("/")
        part = path.with_name(f".{path.name}.part")  # HTCondor does not read names that begin with a dot
        part.write_text(text)
        part.replace(path)

    def make_wrappers_patient(self) -> None:
        """From now on a job's wrapper waits for joblensd for half a minute, where on a node it gives up after 40 ms.

        On a machine that stands still for a moment, or starts many jobs at once, the wrapper's own programs would be in
        the job's numbers. Jobs whose wrapper is not heard have tests of their own.
        """
        self._put_helper(patient_helper())
        for folder in ("joblens_python", "joblens_python_calls"):
            for name in ("joblens_python", "joblens_calls"):
                target = self.root / LIBEXEC.lstrip("/") / folder / f"{name}.so"
                if target.exists():
                    part = target.with_suffix(".part")
                    shutil.copy(patient_python(name), part)
                    part.replace(target)

    @contextlib.contextmanager
    def shipped_wrappers(self) -> Iterator[None]:
        """Wrappers as they are on a node."""
        self._put_helper(CHECKOUT / "build/joblens_activate")
        try:
            yield
        finally:
            self.make_wrappers_patient()

    def _put_helper(self, program: Path) -> None:
        target = self.root / LIBEXEC.lstrip("/") / "joblens_activate"
        if target.exists():
            part = target.with_suffix(".part")
            shutil.copy(program, part)
            part.replace(target)  # one that runs can't be written

    @contextlib.contextmanager
    def without_joblensd(self, signal_number: int) -> Iterator[int]:
        """joblensd gets this signal, and is not started again within the block, however long it takes; its process id.

        condor_master would wait for 20 s. So it reaps joblensd, and then stands still itself.
        """
        with self.config("MASTER_JOBLENSD_BACKOFF_CONSTANT = 20"):
            agent = self.run("pgrep", "-f", "condor_joblens.agent").stdout.split()[0]
            (master,) = self.run("pgrep", "-x", "condor_master").stdout.split()
            self.run("kill", f"-{int(signal_number)}", agent)
            self.until(lambda: not (self.root / "proc" / agent).exists(), "the end of joblensd")
            self.run("kill", "-STOP", master)
            try:
                found = self.run("pgrep", "-f", "condor_joblens.agent", check=False).stdout
                assert not found, "joblensd was started again before condor_master stood still"
                yield int(agent)
            finally:
                self.run("kill", "-CONT", master)

    def log(self, name: str) -> str:
        """The text of one of HTCondor's logs, e.g. JobLensdLog; empty where there is none yet."""
        path = self.root / "var/log/condor" / name
        return path.read_text(errors="replace") if path.exists() else ""

    def diagnosis(self) -> str:
        """What one wants to see when a test failed: the queue, and the end of the agent's log."""
        queue = self.run("condor_q", "-all", "-nobatch", check=False).stdout
        return f"{queue}\n{self.log('JobLensdLog')[-3000:]}"

    def clean(self) -> None:
        """Take all jobs away."""
        if self.run("condor_q", "-all", "-af", "ClusterId").stdout:
            self.run("condor_rm", "-all", check=False)  # it fails if the last job leaves by itself meanwhile
            self.until(lambda: not self.run("condor_q", "-all", "-af", "ClusterId").stdout, "an empty queue")


def patient_helper() -> Path:
    """The wrapper's helper, compiled anew where its source is newer."""
    source, built = CHECKOUT / "hooks/joblens_activate.c", CHECKOUT / "build/test_patient_activate"
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        built.parent.mkdir(exist_ok=True)
        part = built.with_name(f"{built.name}.{os.getpid()}")
        subprocess.run(["gcc", "-O2", "-static", "-DJOBLENS_BUDGET_MS=30000", "-o", part, source], check=True)
        part.rename(built)
    return built


def patient_python(name: str) -> Path:
    """What Pythons load of that name: it waits half a minute to be heard, where on a node it is 0.5 s at most."""
    source, built = CHECKOUT / f"hooks/python/{name}.c", CHECKOUT / f"build/test_patient_{name}.so"
    newest = max(path.stat().st_mtime for path in [source, *source.parent.glob("*.h")])
    if not built.exists() or built.stat().st_mtime < newest:
        headers = [sysconfig.get_paths()["include"], *map(str, Path("/usr/include").glob("python3.*"))]
        found = next(path for path in headers if Path(path, "Python.h").exists())
        built.parent.mkdir(exist_ok=True)
        part = built.with_name(f"{built.name}.{os.getpid()}")
        options = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{found}", "-DJOBLENS_BUDGET_MS=30000"]
        subprocess.run(["gcc", *options, "-o", part, source], check=True)
        part.rename(built)
    return built


@contextlib.contextmanager
def slots_soon(pool: Pool) -> Iterator[None]:
    """A slot's numbers reach the collector within seconds, on every suite."""
    if pool.suite != OLDEST:
        yield
        return
    with pool.config(SLOTS_OF_23):
        yield


@contextlib.contextmanager
def started(
    name: str, suite: str = "newest", conf: Path | None = SCRIPTS / "conf/fast", install: bool = True, network: str = ""
) -> Iterator[Pool]:
    """A pool, ended when the block is left; one of that name that runs already is taken, and left running.

    `network` is the file of a network namespace for it; empty: one of its own, without a network.
    """
    environment = {**os.environ, "POOL": name, "CONF": str(conf or ""), "NETWORK": network}
    environment.pop("SUITE", None)
    if suite != "newest":
        environment["SUITE"] = suite
    pool = Pool(name, suite)
    ask = [str(SCRIPTS / "run"), "--pool", name, "true"]
    ran_before = subprocess.run(ask, capture_output=True).returncode == 0
    try:
        subprocess.run([SCRIPTS / "start"], env=environment, check=True)
        if install:
            subprocess.run([SCRIPTS / "install"], env=environment, check=True)
        yield pool
    finally:
        if not ran_before:
            subprocess.run([SCRIPTS / "stop"], env=environment, check=True)
