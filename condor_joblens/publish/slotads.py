"""The startd's cron job: prints, for each slot of its own startd, the ad that carries JobLensUsage.

A block of `Name = expression` lines ends in `- TAG update:BOOLEAN`. Each tag's ad stays in the startd until
the tag comes again, and is merged into the slots whose name begins with its SlotName. Three things follow
(from condor_startd.V6, StartdNamedClassAd and Resource::refresh_startd_cron_attrs):

- A number of a job that is gone goes away only if it is overwritten with `undefined`. A block without it leaves it in
  the slot's own ad. So it is overwritten at once and out of turn: a claim's next job can be in the slot within a
  second.
- Every block makes the startd merge all tags into all slots. What that costs grows with the slots: they take
  turns, in a tempo that leaves the startd its time.
- `update:true` sends the slot's ad to the collector at once. A job's first ad asks for that, and its end. In between
  the collector gets the ads with the startd's own updates (UPDATE_INTERVAL), at no more cost. Before HTCondor 24.0.18
  (HTCONDOR-3526) it sends the startd's daemon ad alone, and the slots' must wait. It also writes over the job's own
  `.update.ad`, which the starter reads for the last time some milliseconds after the end. So the end is sent a little
  later than it is withdrawn.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import time
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from condor_joblens import __version__
from condor_joblens.common.condor_config import read_macros
from condor_joblens.common.config import Config
from condor_joblens.common.config_parser import parse
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.sizing import seconds_between_slot_ads
from condor_joblens.model.metrics import empty_rows, text
from condor_joblens.publish import node_ad, node_key
from condor_joblens.publish.attribute import ATTRIBUTE
from condor_joblens.publish.classad import quote, usage_ads
from condor_joblens.publish.node_ad import JobCounts, NodeAd
from condor_joblens.publish.node_doctor import NodeDoctor
from condor_joblens.shm.reader import Reader, is_stale

FIRST_AGE = 5.0
"""Seconds that a run lives before its first ad: most of the shortest jobs then cost the startd nothing."""

BURST = 10.0
"""Ads that may be printed at once after a time without any."""

SENT_AFTER = 2.0
"""Seconds from the end of a run until the collector is told, when its starter has mostly sent the last numbers."""

REMEMBERED = 600.0
"""Seconds: a publisher that starts withdraws runs that ended so lately, for a predecessor that was killed."""

_SILENT = "joblensd writes no new numbers: see JobLensdLog on this machine"
_TICK_MILLISECONDS = 250
_SLOT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass
class _Shown:
    """What a slot's ad shows."""

    run: bytes
    since: float  # epoch seconds: `period` after them it has its next turn


class SlotAds:
    """Decides which slots' ads are due, and writes them. Knows neither clock nor shared memory."""

    def __init__(self, execute: str, period: float) -> None:
        """`execute` is the startd's EXECUTE folder; `period` how often a slot has its turn, in seconds."""
        self.period = period
        self._execute = execute_key(execute)
        self._shown: dict[str, _Shown] = {}
        self._unsent: dict[str, float] = {}  # slot -> when the collector is told that it shows nothing
        self._tokens = BURST
        self._counted = 0.0

    def round(self, rows: np.ndarray, now: float, key: str = "") -> str:
        """The blocks that are due at `now` (epoch seconds), given all rows of the node, shape (n,), and its key."""
        running = self._running(rows)
        gone = [slot for slot, shown in self._shown.items() if self._is_gone(slot, shown, rows, running)]
        sent = [slot for slot, due in self._unsent.items() if due <= now]
        withdrawn = "".join([self._withdraw(slot) for slot in sent] + [self._withdraw(slot, now) for slot in gone])
        turns = self._turns(running, rows, now)
        ads = node_key.with_key(usage_ads(rows[[running[slot] for slot in turns]]), key)
        return withdrawn + "".join(
            [self._show(slot, bytes(rows["run"][running[slot]]), ad, now) for slot, ad in zip(turns, ads)]
        )

    def forget(self, rows: np.ndarray, now: float) -> str:
        """Blocks that withdraw what a predecessor may have left of the runs in `rows` that ended lately."""
        lately = rows[rows["update_time"] > now - REMEMBERED]
        return "".join([self._withdraw(slot) for slot in self._mine(lately)])

    def withdraw(self) -> str:
        """Blocks that withdraw everything shown."""
        return "".join([self._withdraw(slot) for slot in [*self._shown, *self._unsent]])

    def rows_of_mine(self, rows: np.ndarray) -> np.ndarray:
        """Those of `rows` that are of jobs in this startd's slots; a slot's jobs before can still have theirs."""
        living = rows[~rows["final"]]
        mine: np.ndarray = living[list(self._mine(living).values())]
        return mine

    def _mine(self, rows: np.ndarray) -> dict[str, int]:
        """Slot -> position of its row, for the slots of this startd."""
        columns = zip(rows["execute"].tolist(), rows["slot"].tolist())
        mine = ((text(slot), row) for row, (execute, slot) in enumerate(columns) if self._is_mine(execute))
        return {slot: row for slot, row in mine if _SLOT_NAME.fullmatch(slot)}

    def _is_mine(self, execute: bytes) -> bool:
        return execute_key(text(execute)) == self._execute

    def _running(self, rows: np.ndarray) -> dict[str, int]:
        final = rows["final"]
        positions = np.flatnonzero(~final)
        return {slot: int(positions[row]) for slot, row in self._mine(rows[~final]).items()}

    def _is_gone(self, slot: str, shown: _Shown, rows: np.ndarray, running: dict[str, int]) -> bool:
        return slot not in running or rows["run"][running[slot]] != shown.run

    def _turns(self, running: dict[str, int], rows: np.ndarray, now: float) -> list[str]:
        """The slots whose ads are due and affordable; those that show nothing yet first."""
        shown = self._shown
        due = {
            slot: shown[slot].since + self.period if slot in shown else float(rows["start_time"][row]) + FIRST_AGE
            for slot, row in running.items()
        }
        order = sorted((slot in self._shown, when, slot) for slot, when in due.items() if when <= now)
        tempo = seconds_between_slot_ads(len(running)) if running else 1.0
        self._tokens = min(BURST, self._tokens + max(0.0, now - self._counted) / tempo)
        self._counted = now
        turns = [slot for _, _, slot in order[: int(self._tokens)]]
        self._tokens -= len(turns)
        return turns

    def _show(self, slot: str, run: bytes, ad: str, now: float) -> str:
        is_first = slot not in self._shown
        self._shown[slot] = _Shown(run, now)
        self._unsent.pop(slot, None)
        return _block(slot, ad, is_first)

    def _withdraw(self, slot: str, ended: float | None = None) -> str:
        """At the end of a run, `ended` (epoch seconds), the collector is told a little later."""
        self._shown.pop(slot, None)
        self._unsent.pop(slot, None)
        if ended is not None:
            self._unsent[slot] = ended + SENT_AFTER
        return _block(slot, "undefined", ended is None)


def execute_key(folder: str) -> str:
    """What is compared of an EXECUTE folder: a cgroup's name has it with _ for /."""
    return os.path.normpath(folder).replace("/", "_")


def _block(slot: str, value: str, update: bool) -> str:
    wanted = "true" if update else "false"
    return f'SlotName = "{slot}@"\n{ATTRIBUTE} = {value}\n- {slot} update:{wanted}\n'


def node_block(note: str) -> str:
    """The ad that all slots get: our version, and what an administrator must know, if anything."""
    shown = quote(printable(note, 240)) if note else "undefined"
    return f"JobLensVersion = {quote(__version__)}\nJobLensNote = {shown}\n- update:true\n"


class Publisher:
    """Joins the shared memory, the clock and standard output."""

    def __init__(self, execute: str) -> None:
        self._config, self._problem = Config(), ""
        self._note: str | None = None
        self._reader: Reader | None = None
        self.doctor = NodeDoctor()
        self.reconfigure()
        self._ads = SlotAds(execute, self._config.slot_ad_period)
        self._node = NodeAd(self._config.run_dir)
        self._jobs: JobCounts | None = None
        self._trouble = _SILENT

    def reconfigure(self) -> None:
        """Reads the configuration anew; what is wrong in it is said in the slots' JobLensNote."""
        self._heard = 0.0
        self.doctor.soon()
        try:
            self._config, problems = parse(read_macros("JOBLENS_.*"))
            self._problem = problems[0] if problems else ""
        except JobLensError as error:
            self._problem = str(error)

    def end(self) -> NoReturn:
        """Ends the process at once: what it has published stays with the startd."""
        self.doctor.stop()
        os._exit(0)

    def start(self, now: float) -> str:
        """What is printed first."""
        try:
            ended, _ = Reader(f"{self._config.run_dir}/ended").rows()
        except JobLensError:
            return ""  # no joblensd has run since the machine started, nor has anything been shown
        return self._ads.forget(ended, now)

    def round(self, now: float) -> str:
        """The blocks that are due now."""
        self.doctor.poll(now)
        slots = self._slots(now)
        return slots + self._node.block(self._jobs, self._trouble, self.doctor.health, now)

    def _slots(self, now: float) -> str:
        self._ads.period = self._config.slot_ad_period
        self._node.period = min(node_ad.PERIOD, node_ad.SLOTS_PERIODS * self._config.slot_ad_period)
        try:
            rows, taken, writer = self._rows()
            silent = is_stale(taken, now, self._config.period) or not _lives(writer)
            if taken == self._heard and not silent:
                return ""  # nothing has changed
            self._heard, trouble = taken, ""
        except JobLensError as error:
            self._reader = None
            rows, trouble = empty_rows(0), str(error)
            silent = is_stale(self._heard, now, self._config.period)
        was_silent = self._jobs is None
        self._jobs = None if silent or trouble else node_ad.count(self._ads.rows_of_mine(rows))
        if was_silent and self._jobs is not None:
            self.doctor.soon()  # joblensd is back
        self._trouble = trouble or _SILENT
        if silent:
            return self._say(trouble or _SILENT) + self._ads.withdraw()
        if trouble:
            # it may be restarting; but nobody tells when the jobs end that are shown, and the next ones begin
            return self._ads.withdraw()
        return self._say(self._problem) + self._ads.round(rows, now, node_key.known(self._config.run_dir))

    def _say(self, note: str) -> str:
        if note == self._note:
            return ""
        self._note = note
        print(note or "the numbers of joblensd are being published", file=sys.stderr, flush=True)
        return node_block(note)

    def _rows(self) -> tuple[np.ndarray, float, int]:
        if self._reader is None:
            self._reader = Reader(f"{self._config.run_dir}/rows")
        return *self._reader.rows(), self._reader.writer_pid


def _lives(process: int) -> bool:
    """Whether joblensd is there: it is root's, and that we may not signal it says that it is.

    One that has ended and that a busy condor_master has not reaped yet can be signalled too.
    """
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return not file.read().rpartition(b") ")[2].startswith(b"Z")
    except OSError:
        return True


def main(arguments: list[str]) -> int:
    """Runs until SIGTERM, or until the startd that reads us is gone. SIGHUP: reads the configuration anew."""
    execute = arguments[0] if arguments else read_macros("EXECUTE").get("EXECUTE", "")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    reconfigurations: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, _: reconfigurations.append(number))
    publisher = Publisher(execute)
    signal.signal(signal.SIGTERM, lambda *_: publisher.end())
    startd = select.poll()
    startd.register(sys.stdout, 0)
    try:
        _print(publisher.start(time.time()))
        while True:
            _print(publisher.round(time.time()))
            if startd.poll(_TICK_MILLISECONDS):
                return 0  # nobody reads us any more
            if reconfigurations:
                reconfigurations.clear()
                publisher.reconfigure()
    except BrokenPipeError:
        return 0
    finally:
        publisher.doctor.stop()


def _print(blocks: str) -> None:
    # by the descriptor: a buffer would be written once more at exit, and complain of the broken pipe
    data = blocks.encode("ascii")
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except JobLensError as error:
        sys.exit(str(error))
