#!/usr/bin/env python3
"""What the hub's processes cost: taking records in, pages over many live runs, and viewers.

The hub is the real one, with its embedded store and users of its own. Records are generated like those of jobs, and
posted by this process. CPU is that of the hub's processes, by /proc; the generator's is not in it.

    bench_hub.py                    20,000 runs, in a minute
    bench_hub.py --runs 200000      without what those runs sent before
    bench_hub.py --runs 200000 --pages   the pages alone: cold and from the cache, for each role; and viewers

What is kept for docs/performance.md has 10 million samples that a site of 200,000 runs has sent before. They come in
portions: each goes on where the last one ended, however it ended. The store copies those of one node as those of
another, in a fifth of the time that posts take:

    bench_hub.py --runs 200000 --folder /var/tmp/hub --rows 1000000             so many more samples, at least
    bench_hub.py --runs 200000 --folder /var/tmp/hub --rows 9000000 --copies    the same, as copies
    bench_hub.py --runs 200000 --folder /var/tmp/hub                            the numbers; the folder stays
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import http.client
import itertools
import json
import os
import pwd
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks"), str(CHECKOUT / "tests/pool")]

from hub_history import Runs, bounded, name_of, put_numbers  # noqa: E402
from hub_pages import HubPages  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.export.records import RowEncoder  # noqa: E402
from condor_joblens.hub.store.client import Store, socket_of  # noqa: E402
from condor_joblens.model import metrics  # noqa: E402
from condor_joblens.model.servers import Scope  # noqa: E402
from condor_joblens.sinks import RecordKind  # noqa: E402

KEPT_FROM = 200_000
"""Runs from which on the results are kept."""

POST = 2000
"""Records of a post: what an exporter hands to a sink at a time."""

NODES, OWNERS = 100, 50
NEWEST = 100_000
"""The sequence number of what a run has said last before."""

NOW = int(time.time()) // 10
"""The same of what it says now: greater than all that an earlier run of this benchmark has left in the folder."""

SAMPLES = 50
"""Of each run before: 200,000 of them have 10 million."""

DAY_RUNS, DAY_SAMPLES, DAY_NODE = 10, 8640, NODES
"""Runs of one more node, that have a day's samples."""

COPIED = 500
"""Runs at a time."""

MOST_POSTS = 200
"""That lie in memory, until they are sent."""

SENDERS = 10
"""Posts at a time: nodes don't wait for each other."""

OVERLOAD = 10
"""Times as many senders."""

TOGETHER = 10
"""Nodes whose samples of before are sent together, the oldest of all of them first."""

VIEWS = ("/", "/jobs", "/jobs?sort=-memory", "/jobs?q=user7", "/jobs?sort=-read")
OTHERS = (
    "/jobs?state=all&sort=-cores", "/jobs?owner=user7", "/jobs?node=ep007.example.org", "/jobs?server=fs7.example.org",
    "/jobs?column=Process.Live&sort=-Process.Live", "/servers", "/servers/fs7.example.org", "/nodes",
    "/node/ep007.example.org", "/leaks", "/scatter?x=Cpu.Seconds&y=Memory.ResidentBytes",
    "/api/v1/jobs?limit=100", "/api/v1/summary?by=owner", "/api/v1/nodes", "/api/v1/servers",
)  # fmt: skip
"""Pages whose time is measured, too."""

SERVERS, SERVED = 50, 10
"""File servers; every so manyth run has asked two of them."""

VIEWERS = 50
LOOKERS = ("daemon", "bin", "sys", "games")
"""One login has a bounded number of streams."""
WATCHED_SECONDS = 30.0
RENEWED_SECONDS = 120.0
"""For so long pages are watched that are renewed once a minute."""
BACKOFF_SECONDS = 75.0
"""After which pages over all runs are renewed as seldom as they ever are (hub/web/shared.py)."""
ASKERS = ("man", "lp", "mail", "irc", "_apt")
"""Users of this machine who ask for each page once. Each has jobs of his own, so none finds an answer in the cache."""

IDLE_SECONDS = 150.0
"""After which a hub at which nobody looks has no snapshot of live runs any more (hub/web/live_snapshots.py)."""

GROUPS, SCHEDDS = 5, 7
ROLES = {
    "administrator": ("man", "lp", "mail"),
    "manager": ("news", "uucp", "proxy"),
    "user": ("www-data", "backup", "list"),
}
"""A role -> users of this machine who have it. Each has jobs of his own that nobody else has: so none finds an answer
in the cache."""


def main() -> int:
    """Measures all of it; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=20_000, metavar="N", help="that live (20000)")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="where the hub's store stays")
    parser.add_argument("--rows", type=int, default=0, metavar="N", help="only adds samples of before, N at least")
    parser.add_argument("--copies", action="store_true", help="as copies, which the store makes")
    parser.add_argument("--pages", action="store_true", help="measures pages and viewers alone, for each role")
    options = parser.parse_args()
    runs: int = options.runs
    if options.rows:
        return add_history(options.folder, runs, options.rows, options.copies)
    if options.pages:
        return pages_alone(options.folder, runs)
    about = f"{runs} live runs on {NODES} nodes, level basic; chDB as the store. No TLS."
    about += f" Every {SERVED}th run has asked two of {SERVERS} file servers."
    if options.folder:
        about += f" Before, each had sent {SAMPLES} samples of 57 metrics, of which 38 change, and {DAY_RUNS} a day's."
    section = Section("hub", "The hub", about)
    with tempfile.TemporaryDirectory(prefix="joblens-bench-") as passing, hub(options.folder or Path(passing)) as demo:
        if options.folder:
            told_history(section, options.folder, demo)
        posts = [post(number, min(POST, runs - number)) for number in range(0, runs, POST)]
        taken(section, demo, posts)
        overloaded(section, demo, [post(n, min(POST, runs - n), later=1) for n in range(0, runs, POST)])
        sent(demo, earlier_of(runs))
        wait_for_merges(Store(socket_of(f"{demo}/kept")))
        add_askers(demo)
        for view in VIEWS[:2]:
            one_page(section, demo, f"page {view}, the first after nobody has looked", view, 300.0, ASKERS[:1])
            time.sleep(IDLE_SECONDS)
        fetched(HubPages(str(demo)), VIEWS[0])
        time.sleep(10)
        for view in (*VIEWS, *OTHERS):
            one_page(section, demo, f"page {view}", view, 300.0)
        if options.folder:
            # a snapshot of live runs that is renewed meanwhile would be taken for a part of these pages
            time.sleep(IDLE_SECONDS)
            one_day(section, demo)
        watched(section, demo)
        memory(section, demo)
    if runs >= KEPT_FROM and options.folder:
        section.write()
    return verdict(section.missed)


def earlier_of(runs: int) -> list[tuple[str, bytes]]:
    """Readings of file servers, with which the newest ones are compared."""
    return [
        post(number, min(POST, runs - number), SERVED, minutes) for minutes in (3, 1) for number in range(0, runs, POST)
    ]


def pages_alone(folder: Path | None, runs: int) -> int:
    """Pages over runs of which each has sent little, for each role; one job's day; and viewers. The exit code."""
    about = f"{runs} live runs on {NODES} nodes, a sample or three of each; {DAY_RUNS} more with {DAY_SAMPLES} each. "
    about += "A page that is asked for first, by somebody whose scope is nobody else's; and the same once more at once."
    section = Section("hub_pages", "Pages of the hub", about)
    with tempfile.TemporaryDirectory(prefix="joblens-bench-") as passing, hub(folder or Path(passing)) as demo:
        taken(section, demo, [post(number, min(POST, runs - number)) for number in range(0, runs, POST)])
        sent(demo, earlier_of(runs))
        day = Runs(node(DAY_NODE), 1_000_000, DAY_RUNS, DAY_SAMPLES, int(time.time()), NEWEST)
        for posts in bounded(day.posts(POST // DAY_RUNS), MOST_POSTS):
            sent(demo, posts)
        wait_for_merges(Store(socket_of(f"{demo}/kept")))
        add_people(demo)
        for view in (*VIEWS, *OTHERS[:11]):
            for role, users in ROLES.items():
                page_of_role(section, demo, view, role, users)
        one_day(section, demo, ROLES["administrator"])
        watched(section, demo)
        memory(section, demo)
    if runs >= KEPT_FROM:
        section.write()
    return verdict(section.missed)


def add_people(demo: Path) -> None:
    """Those of ROLES. A group has a fifth of all runs, and a user a fiftieth."""
    demo.chmod(0o711)
    text = ""
    for role, users in ROLES.items():
        for name in users:
            jobs = [f"{name}@ap0.example.org", *(f"user7@ap{one}.example.org" for one in range(SCHEDDS))]
            text += f"\n[{name}]\nrole = {role}\nlogin = unix:{name}\njobs = {', '.join(jobs)}\n"
            if role == "manager":
                text += f"groups = {', '.join(f'group1@ap{one}.example.org' for one in range(SCHEDDS))}\n"
    with (demo / "people").open("a") as file:
        file.write(text)


def page_of_role(section: Section, demo: Path, view: str, role: str, users: Sequence[str]) -> None:
    """CPU of store and web: of a page that nobody has asked for, and of the same at once again."""
    pages = HubPages(str(demo))
    cold, again = ({"store": 0.0, "web": 0.0} for _ in range(2))
    took: list[float] = []
    for name in users:
        for spent in (cold, again):
            before, began = cpu(demo), time.monotonic()
            answer = fetched_as(name, pages, view, (200, 404))
            took.append(time.monotonic() - began)
            for word in spent:
                spent[word] += cpu(demo)[word] - before[word]
    store, web, web_again = (1000 * one / len(users) for one in (cold["store"], cold["web"], again["web"]))
    first, second = (1000 * statistics.median(took[place::2]) for place in (0, 1))
    note = f"store {store:.0f}, web {web:.0f}; by the clock {first:.0f}, {len(answer) / 1024:.0f} KiB; "
    note += f"again: web {web_again:.1f}, by the clock {second:.0f}"
    section.add(f"page {view}, {role}", store + web, "ms of CPU", 300.0, note)


@contextlib.contextmanager
def hub(folder: Path) -> Iterator[Path]:
    """The demo's, with a token for each node; its folder."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    (folder / "demo" / "ready").unlink(missing_ok=True)
    subprocess.run([CHECKOUT / "tests/pool/demo_hub", folder], check=True)
    demo, pid = folder / "demo", int((folder / "pid").read_text())
    lines = [
        f"node {node(number)} {hashlib.sha256(node(number).encode()).hexdigest()}\n" for number in range(NODES + 1)
    ]
    with (demo / "tokens").open("a") as file:
        file.write("".join(lines))
    try:
        yield demo
    finally:
        os.kill(pid, 15)
        with contextlib.suppress(OSError):
            while ") Z " not in Path(f"/proc/{pid}/stat").read_text():
                time.sleep(0.1)


def node(number: int) -> str:
    """Its name; in these tests its token, too."""
    return f"ep{number:03d}.example.org"


def post(begin: int, count: int, each: int = 1, minutes: int = 0, later: int = 0) -> tuple[str, bytes]:
    """The node that sends it, and its body: a sample of each of `count` runs, or of every so manyth, so long before."""
    rows = metrics.empty_rows(count)
    put_numbers(rows, np.random.default_rng(begin))
    rows["level"], rows["executable"], rows["slot"] = b"basic", b"reconstruct", b"slot1_1"
    now = int(time.time()) - 60 * minutes
    for place in range(count):
        name = name_of(begin + place)
        rows["global_job_id"][place], rows["run"][place] = name, f"{name}#1"
        rows["job_id"][place], rows["owner"][place] = f"{begin + place}.0", f"user{(begin + place) % OWNERS}"
        rows["accounting_group"][place] = f"group{(begin + place) % GROUPS}.physics"
    rows["run_number"], rows["sequence"] = np.arange(begin + 1, begin + count + 1), NOW - minutes + later
    rows["start_time"], rows["update_time"], rows["period_seconds"] = now - 3600, now + 1800, 10  # they stay alive
    rows["request_cpus"], rows["request_memory_bytes"] = 1, 4 << 30
    asked = rows["servers"][::SERVED, :2]
    for at in range(2):
        asked["name"][:, at] = [
            f"fs{(one // SERVED + at) % SERVERS}.example.org" for one in range(begin, begin + count, SERVED)
        ]
    asked["scope"], asked["requests"], asked["seconds"] = Scope.SERVER, 100_000 - 1000 * minutes, 50.0 - minutes
    who = node(begin // POST % NODES)
    lines = [record.json for record in RowEncoder(who).records(rows[::each], RecordKind.SAMPLE)]
    return who, gzip.compress(b"\n".join(lines), 1)


class History:
    """What has been sent of the samples of before, in a file of the hub's folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "history.json"
        new = {"until": int(time.time()), "parts": 0, "rows": 0, "copied": 0, "wall": 0.0, "ingest": 0.0, "store": 0.0}
        self.told: dict[str, float] = json.loads(self._file.read_text()) if self._file.exists() else new

    def parts(self, runs: int) -> list[list[Runs]]:
        """Those that are left, each of some nodes. In the first one are runs that have a day."""
        until = int(self.told["until"])
        day = Runs(node(DAY_NODE), 1_000_000, DAY_RUNS, DAY_SAMPLES, until, NEWEST - 1)
        rest = [
            Runs(node(begin // POST % NODES), begin, min(POST, runs - begin), SAMPLES, until, NEWEST - 10)
            for begin in range(0, runs, POST)
        ]
        together = [rest[begin : begin + TOGETHER] for begin in range(0, len(rest), TOGETHER)]
        return [[day, *together[0]], *together[1:]][int(self.told["parts"]) :]

    def add(self, **more: float) -> None:
        """One part more."""
        self.told.update({name: self.told[name] + value for name, value in {"parts": 1, **more}.items()})
        self._file.write_text(json.dumps(self.told))
        print(f"{self.told['rows']:,.0f} rows posted, {self.told['copied']:,.0f} copied", flush=True)


def add_history(folder: Path, runs: int, most: int, as_copies: bool) -> int:
    """Until there are so many rows more, or all; the exit code."""
    folder.mkdir(exist_ok=True)
    history, added = History(folder), 0
    with hub(folder) as demo:
        store = Store(socket_of(f"{demo}/kept"))
        for part in history.parts(runs):
            count = sum(one.count * one.samples for one in part)
            if as_copies:
                for one in part:
                    copy(store, one)
                history.add(copied=count)
            else:
                before, began = cpu(demo), time.monotonic()
                rounds = [one.posts(POST // one.count) for one in part]
                for posts in bounded(taking_turns(rounds), MOST_POSTS):
                    sent(demo, posts)
                wait_for_merges(store)
                spent = {word: seconds - before[word] for word, seconds in cpu(demo).items()}
                wall = time.monotonic() - began
                history.add(rows=count, wall=wall, ingest=spent["ingest"], store=spent["store"])
            added += count
            if added >= most:
                break
    return 0


def taking_turns(posts: Sequence[Iterator[tuple[str, bytes]]]) -> Iterator[tuple[str, bytes]]:
    """A post of each node, then the next of each."""
    for those in itertools.zip_longest(*posts):
        yield from (one for one in those if one)


def wait_for_merges(store: Store) -> None:
    """Until the store has none to do now: they belong to what was taken in."""
    while store.ask("SELECT count() AS n FROM system.merges")[0]["n"]:
        time.sleep(0.5)


def copy(store: Store, part: Runs) -> None:
    """The samples of the first node's runs, as those of another's."""
    job = f"concat('{name_of(part.begin).partition('#')[0]}#', NewJob, '#1700000000')"
    new = {
        "Node": f"'{part.node}'",
        "JobId": "NewJob",
        "GlobalJobId": job,
        "Run": f"concat({job}, '#1')",
        "RunNumber": f"OldNumber + {part.begin}",
        "Id": f"concat({job}, '#1/', toString(OldNumber + {part.begin}), '/', toString(Sequence))",
    }
    changed = ", ".join(f"{what} AS {name}" for name, what in new.items())
    for begin in range(0, part.count, COPIED):
        store.change(
            f"INSERT INTO samples SELECT * EXCEPT (NewJob, OldNumber) REPLACE ({changed}) FROM (SELECT *, "
            f"RunNumber AS OldNumber, concat(toString(RunNumber + {part.begin - 1}), '.0') AS NewJob FROM samples "
            f"WHERE Node = '{node(0)}' AND Sequence < {NEWEST - 5} "
            f"AND RunNumber > {begin} AND RunNumber <= {min(begin + COPIED, part.count)}) "
            "SETTINGS max_block_size = 10000, min_insert_block_size_rows = 25000, max_threads = 1"
        )


def told_history(section: Section, folder: Path, demo: Path) -> None:
    """What the samples of before have cost."""
    told = History(folder).told
    store = Store(socket_of(f"{demo}/kept"))
    (whole,) = store.ask(
        "SELECT sum(rows) AS n, sum(bytes_on_disk) AS bytes, count() AS parts FROM system.parts "
        "WHERE active AND table = 'samples'"
    )
    section.add("samples in the store", whole["n"], "", 10e6, f"in {whole['parts']} parts", is_least=True)
    section.add("bytes on disk of a sample", whole["bytes"] / whole["n"], "B", 140.0)
    spent = told["ingest"] + told["store"]
    section.add("taken in by a core, with merges", told["rows"] / spent, "records/s", 15_000.0, is_least=True)
    section.add("of its time, checks and HTTP", 100 * told["ingest"] / spent, "%")


def one_day(section: Section, demo: Path, askers: Sequence[str] = ASKERS) -> None:
    """Of one job: its page, and its metrics for programs."""
    run = quote(f"{name_of(1_000_000 + 3)}#1", safe="")
    for what, address in (
        ("series of 2 metrics", f"/api/v1/job/{run}/series?metrics=Cpu.RecentCores,Memory.ResidentBytes"),
        ("its newest record", f"/api/v1/job/{run}"),
        ("page", f"/job/{run}"),
        ("JSON of its page, with charts", f"/job/{run}.json"),
    ):
        one_page(section, demo, f"one job's day, {what}", address, 100.0, askers)


def memory(section: Section, demo: Path, when: str = "at the end") -> None:
    """The most that each process had until then."""
    for word, pid in processes(demo).items():
        text = Path(f"/proc/{pid}/status").read_text()
        kibibytes = int(text.partition("VmHWM:")[2].split()[0])
        section.add(f"memory of {word}, at most", kibibytes / 1024, "MiB", note=when)


def taken(section: Section, demo: Path, posts: Sequence[tuple[str, bytes]]) -> None:
    """All posts, and what that cost."""
    before, began = cpu(demo), time.monotonic()
    sent(demo, posts)
    wall = time.monotonic() - began
    wait_for_merges(Store(socket_of(f"{demo}/kept")))
    spent = {word: seconds - before[word] for word, seconds in cpu(demo).items()}
    count = len(posts) * POST
    whole = spent["ingest"] + spent["store"]
    section.add("CPU for a record taken in", 1e6 * whole / count, "µs", 67.0, "15,000 records/s a core")
    section.add("of these, checks and HTTP", 1e6 * spent["ingest"] / count, "µs")
    section.add("of these, the store", 1e6 * spent["store"] / count, "µs")
    section.add("records taken in", count / wall, "records/s", note="the generator sends beside it")


def overloaded(section: Section, demo: Path, posts: Sequence[tuple[str, bytes]]) -> None:
    """All nodes send at once, which is ten times of what the hub is sent else."""
    before, began = cpu(demo), time.monotonic()
    later = sent(demo, posts, OVERLOAD * SENDERS)
    wall = time.monotonic() - began
    spent = {word: seconds - before[word] for word, seconds in cpu(demo).items()}
    count = len(posts) * POST
    whole = spent["ingest"] + spent["store"]
    note = f"{count / wall:,.0f} records/s; {later} times a node was told to come later"
    section.add(f"CPU for a record, {OVERLOAD} times as many senders", 1e6 * whole / count, "µs", 67.0, note)
    memory(section, demo, "after that")


def sent(demo: Path, posts: Sequence[tuple[str, bytes]], senders: int = SENDERS) -> int:
    """By some senders at a time, each post until it is confirmed; how often one was told to come later."""
    address = (demo / "records").read_text().strip()
    left = list(posts)
    lock = threading.Lock()
    later: list[int] = []

    def sender() -> None:
        connection = http.client.HTTPConnection(address, timeout=120)
        while True:
            with lock:
                if not left:
                    return
                who, body = left.pop(0)
            while True:
                head = {"Authorization": f"Bearer {who}", "Content-Encoding": "gzip"}
                try:
                    connection.request("POST", "/v1/records", body, head)
                    answer = connection.getresponse()
                    content = answer.read()
                except (OSError, http.client.HTTPException):  # it was closed while we sent
                    connection.close()
                    later.append(0)
                    time.sleep(0.1)
                    continue
                if answer.status == 200:
                    assert not json.loads(content)["refused"], content[:300]
                    break
                assert answer.status in (429, 503), (answer.status, content)
                later.append(answer.status)
                time.sleep(float(answer.headers.get("Retry-After", 1)))  # as nodes do

    threads = [threading.Thread(target=sender) for _ in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(later)


def add_askers(demo: Path) -> None:
    """Administrators, so that their processes may ask."""
    demo.chmod(0o711)
    jobs = "\n".join(
        f"[{name}]\nrole = administrator\nlogin = unix:{name}\njobs = {name}@ap0.example.org" for name in ASKERS
    )
    with (demo / "people").open("a") as file:
        file.write(f"\n{jobs}\n")


def one_page(
    section: Section, demo: Path, what: str, address: str, target: float, askers: Sequence[str] = ASKERS
) -> None:
    """A page as a browser asks for it, each time made anew: the CPU of store and web, its time on a free machine."""
    took, spent = [], {"store": 0.0, "web": 0.0}
    for name in askers:
        before, began = cpu(demo), time.monotonic()
        fetched_as(name, HubPages(str(demo)), address)
        took.append(time.monotonic() - began)
        after = cpu(demo)
        spent = {word: seconds + after[word] - before[word] for word, seconds in spent.items()}
        time.sleep(0.5)
    store, web = (1000 * spent[word] / len(askers) for word in ("store", "web"))
    note = f"store {store:.0f}, web {web:.0f}; by the clock {1000 * statistics.median(took):.0f}"
    section.add(what, store + web, "ms of CPU", target, note)


def fetched_as(name: str, pages: HubPages, path: str, good: Sequence[int] = (200,)) -> bytes:
    """A page, as that user of this machine."""
    os.seteuid(pwd.getpwnam(name).pw_uid)  # whom the hub takes the other end of its socket for
    try:
        return fetched(pages, path, good)
    finally:
        os.seteuid(0)


def fetched(pages: HubPages, path: str, good: Sequence[int] = (200,)) -> bytes:
    """A page."""
    connection = http.client.HTTPConnection("localhost", timeout=120)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(f"{pages.folder}/pages.sock")
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status in good, body[:300]
    return body


def watched(section: Section, demo: Path) -> None:
    """The hub's CPU while nobody looks, while each view has one viewer, and while all look."""
    demo.chmod(0o711)
    people = "".join(f"\n[{name}]\nrole = administrator\nlogin = unix:{name}\n" for name in LOOKERS)
    with (demo / "people").open("a") as file:
        file.write(people)
    more = (*VIEWS, *OTHERS[: len(VIEWS)])
    shares: dict[tuple[int, int], float] = {}
    for viewers, distinct in ((0, 1), (len(VIEWS), len(VIEWS)), (VIEWERS, len(VIEWS)), (VIEWERS, len(more))):
        views = [more[number % distinct] for number in range(viewers)]
        each = -(-viewers // len(LOOKERS))
        crowds = [
            crowd(demo, name, views[n * each : (n + 1) * each]) for n, name in enumerate(LOOKERS) if views[n * each :]
        ]
        time.sleep(10)
        first = spent_in(demo, WATCHED_SECONDS)
        time.sleep(BACKOFF_SECONDS - WATCHED_SECONDS if viewers else 0)
        spent = spent_in(demo, RENEWED_SECONDS)
        for pid in crowds:
            assert os.waitpid(pid, os.WNOHANG) == (0, 0), "a viewer was refused"
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        shares[viewers, distinct] = share = spent["web"] + spent["store"]
        note = f"web {spent['web']:.1f}, store {spent['store']:.1f}"
        note += f"; in the first minute {first['web'] + first['store']:.1f}"
        target = 5.0 if (viewers, distinct) == (VIEWERS, len(VIEWS)) else None
        section.add(f"{viewers} viewers on {min(viewers, distinct)} views", share, "% of a core", target, note)
    further = (shares[VIEWERS, len(more)] - shares[VIEWERS, len(VIEWS)]) / (len(more) - len(VIEWS))
    section.add("each further view", further, "% of a core")


def spent_in(demo: Path, seconds: float) -> dict[str, float]:
    """What each of its processes takes of a core, in percent, for so long."""
    before, began = cpu(demo), time.monotonic()
    time.sleep(seconds)
    wall = time.monotonic() - began
    return {word: 100 * (after - before[word]) / wall for word, after in cpu(demo).items()}


def crowd(demo: Path, name: str, views: Sequence[str]) -> int:
    """A process of that user, who looks at these views at a time; its id."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setuid(pwd.getpwnam(name).pw_uid)
            threads = [threading.Thread(target=look, args=(f"{demo}/pages.sock", view)) for view in views]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            os._exit(1)
    return pid


def look(path: str, view: str) -> None:
    """A stream, as a browser reads it: when it ends, another."""
    while True:
        connection = http.client.HTTPConnection("localhost", timeout=120)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(120)
        connection.sock.connect(path)
        connection.request("GET", f"/stream{view}")
        answer = connection.getresponse()
        if answer.status != 200:
            os._exit(1)
        while answer.readline():
            pass
        connection.close()


def cpu(demo: Path) -> dict[str, float]:
    """Seconds of each of its processes, by its word: by the process's own clock, which Linux numbers by its id."""
    return {word: time.clock_gettime((~pid << 3) | 2) for word, pid in processes(demo).items()}


def processes(demo: Path) -> dict[str, int]:
    """Their ids: those that `joblens-hub run` has started, which the demo has started beside its relay server."""
    beside = [(pid, words_of(pid)) for pid in children(int((demo.parent / "pid").read_text()))]
    (run,) = (pid for pid, words in beside if words[2] == "condor_joblens.hub")
    return {words_of(pid)[3]: pid for pid in children(run)}


def words_of(pid: int) -> list[str]:
    """Its command line."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


def children(pid: int) -> list[int]:
    """Its children."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


if __name__ == "__main__":
    sys.exit(main())
