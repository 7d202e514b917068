"""What a command needs of joblensd. agent/control_socket.py gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from condor_joblens.common.config import Config
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Payer
from condor_joblens.control.warrants import Meant
from condor_joblens.jobs.run_table import Ended, Runs
from condor_joblens.jobs.sandbox import JobSandbox
from condor_joblens.model.levels import Level
from condor_joblens.shm.artifacts import ArtifactWriter


class Remote(Protocol):
    """What commands from afar need (commands/warrant.py)."""

    @property
    def key(self) -> Any:
        """The node's own: an Ed25519PrivateKey."""

    def meant(self, run: int) -> tuple[Meant, bytes]:
        """For whom and for what a warrant has to be, and the public key of the job's access point. Raises Refused."""


class NodeProtocol(Protocol):
    """The node's runs, each by its index in `runs`, and what can be done to them."""

    @property
    def runs(self) -> Runs:
        """The runs that live."""

    @property
    def ended(self) -> Ended:
        """The runs that have ended."""

    @property
    def artifacts(self) -> ArtifactWriter:
        """What is kept about runs that live or have ended."""

    @property
    def config(self) -> Config:
        """The knobs, as they are now."""

    def log(self, message: str) -> None:
        """A line of JobLensdLog."""

    def sandbox(self, run: int) -> JobSandbox | None:
        """The folder of the run's starter; None if it is unknown."""

    def cgroup(self, run: int) -> str:
        """The folder of the run's cgroup."""

    @property
    def remote(self) -> Remote | None:
        """What commands from afar need; None: the node takes none."""

    def describe(self, run: int) -> str:
        """The run in a line of the log."""

    def note(self, run: int, without: str = "") -> str:
        """The run's note, except what is of the cause `without`, as `late_io`."""

    def run_of_process(self, pid: int, slot: str, scratch: str) -> int:
        """The run in whose cgroup the process is; `slot` and `scratch` are what it claims. Raises Refused."""

    def next_job(self, run: int, pid: int) -> bool:
        """Whether the process is the wrapper of another job, in the cgroup that this run left behind.

        This run is then over, and another one has begun.
        """

    def only_wrapper_ran(self, run: int) -> bool:
        """Whether nothing but a job's wrapper has run in the slot since its cgroup began; else the row says so."""

    def begin_counting(self, run: int, pid: int) -> None:
        """The wrapper, which is this process, starts the job now: all counters begin at zero."""

    def traces_python(self, run: int) -> str:
        """What its Pythons are to tell of: `raises`, or `calls` as well; empty: nothing, or it may not have that."""

    def python_ring(self, run: int, pid: int, version: str) -> tuple[dict[str, str], int]:
        """What this process of the job is to record (commands/python.py), and its ring's descriptor. Raises Refused."""

    def has_raised(self, run: int, pid: int, line: str, place: str, traceback: str) -> bool:
        """A Python of the job, which is this process, ends of an exception. Raises Refused if it is not traced.

        Whether its local variables are wanted as well.
        """

    def has_variables(self, run: int, pid: int, lines: str) -> None:
        """That Python's local variables. Raises Refused if nobody has asked for them."""

    def level_refusal(self, run: int, level: Level | None, by_root: bool) -> str:
        """Why root, or if not `by_root` the job's owner, may not give the run this level by hand; empty if it may.

        `level` None: the level that was given by hand is taken back.
        """

    def kept_low(self, run: int) -> str:
        """Which entry keeps the run from a closer level, if its row does not name it; empty if none."""

    def take_entries(self, packet: bytes) -> None:
        """The entries in it hold from now on, and no others. Raises BadEntries."""

    def count_entry(self, packet: bytes) -> dict[str, Any]:
        """How many jobs the entry in it would be for. Raises BadEntries."""

    def apply_levels(self, run: int) -> None:
        """Every run gets the level that is due to it; what is said of this one, in its row and ad, is renewed."""

    def take_evidence(self, run: int, whose: Payer, stream: Stream) -> None:
        """Sends what the run's threads do and wait for, to this user; one look at a time. Raises Refused."""

    def keep_last_events(self, run: int, whose: Payer) -> float:
        """Keeps what the run's job did last, for this user; when that was, epoch seconds. Raises Refused."""

    def notify(self, run: int, line: bytes) -> str:
        """Tells the run's job this line (owner_files/notices.py); empty, or why not."""

    def do_as_owner(self, run: int, whose: Payer, request: Mapping[str, object], stream: Stream) -> None:
        """Has the run's owner do what is asked for (owner_commands/), and sends what comes of it. Raises Refused."""
