"""When a sensor is in the kernel: attached while a job needs it, and taken out some time after the last such job."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.failures import Failures
from condor_joblens.model.levels import Level
from condor_joblens.tracer.loader import Loaded
from condor_joblens.tracer.loader_client import NotLoaded
from condor_joblens.tracer.sensor import Sensor

AGAIN_SECONDS = 10.0
"""After that it is tried again to load what could not be loaded, as soon as a slot needs it."""


LOADING = "its programs are still being loaded into the kernel"
"""Why a slot could not be started, if it can be in a moment."""


class OnDemand:
    """A sensor that is loaded with the first slot that needs it, and unloaded `linger_seconds` after the last.

    With `keep_loaded` it is only attached and detached: verified programs stay in the kernel, where nothing runs them.
    `missing` has the parts that the kernel refused when it was loaded, with the reason.
    """

    def __init__(
        self, sensor: Sensor, folder: Path | None, shared: Mapping[str, int], linger_seconds: float, keep_loaded: bool
    ) -> None:
        """`folder` is where it is pinned, None if nothing can be; `shared` are the maps of basic, by name."""
        self.sensor = sensor
        self.linger_seconds = linger_seconds
        self.keep_loaded = keep_loaded
        self._folder, self._shared = folder, shared
        self._loading: LoadingThread | None = None
        self._done: Callable[[], object] | None = None  # None: whoever needs the sensor waits until it is loaded
        self._is_refused = False
        self._not_before = 0.0  # time.monotonic(): what loads has failed
        self._used = time.monotonic()  # when a slot was counted for the last time, as `settle` saw it

    @property
    def name(self) -> str:
        """Of the sensor."""
        return self.sensor.name

    @property
    def level(self) -> Level:
        """The lowest level at which a job needs it."""
        return self.sensor.level

    @property
    def missing(self) -> dict[str, str]:
        """Parts that the kernel refused -> why."""
        return self.sensor.missing

    def adopt(self) -> None:
        """Goes on with what an earlier agent left pinned. Raises JobLensError if a pin can't be opened."""
        if self._folder is None or not self.sensor.adopt(self._folder, self._shared):
            self.sensor.closed()

    def load_aside(self, done: Callable[[], object]) -> None:
        """From now on a thread loads the sensor, and calls `done`. Until then no slot can be started."""
        self._done = done
        if self.keep_loaded and self.sensor.max_jobs and self.sensor.loaded is None:
            self._begin_loading()

    # -- slots ----------------------------------------------------------------------------------------------

    def start(self, slot: int) -> bool:
        """Counts the slot from nothing on; false if that can't be, or not yet: `why_not` says why."""
        self._used = time.monotonic()
        return self.sensor.max_jobs > 0 and self._is_ready() and self.sensor.start(slot)

    def stop(self, slot: int) -> np.ndarray | None:
        """Counts the slot no longer; what was counted to the last moment, shape (1,). None if it was not counted."""
        return self.sensor.stop(slot) if self.sensor.is_attached else None

    def discard(self, slot: int) -> None:
        """Stops counting the slot. The next round detaches a sensor that stays loaded, if no other slot needs it."""
        self.stop(slot)
        if self.keep_loaded and not self.sensor.in_use():
            self._used = -math.inf

    def counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of `slots` (n,) are counted, shape (n,) of bool, and what was counted for those, one element each."""
        return self.sensor.counters(slots)

    def failures(self, slot: int, tgid: int) -> Failures | None:
        """What has failed lately for a process of the slot that has ended, once; None if nothing is known."""
        return self.sensor.failures(slot, tgid) if self.sensor.is_attached else None

    def lost(self) -> int:
        """Events that could not be counted since this tracer was made, on the whole node."""
        return self.sensor.lost()

    def why_not(self) -> str:
        """Why a slot could not be started."""
        if self._loading is not None:
            return LOADING
        if self.sensor.loaded is None and self._not_before:
            return f"its programs could not be loaded just now: {next(iter(self.sensor.missing.values()), '?')}"
        if self._is_refused:
            return "the kernel refuses what it needs, see JobLensdLog"
        return f"no more than JOBLENS_MAX_JOBS_{self.name.upper()} = {self.sensor.max_jobs} jobs can be watched at it"

    # -- in the kernel and out of it --------------------------------------------------------------------------

    def settle(self) -> None:
        """Once a round: detaches it, or takes it out of the kernel, if no slot has needed it for a while."""
        self._take_loaded()
        if self.sensor.loaded is None:
            return
        now = time.monotonic()
        if self.sensor.in_use():
            self._used = now
            self.sensor.refresh()
        elif now - self._used >= self.linger_seconds:
            self._put_away()

    def _put_away(self) -> None:
        loaded = self.sensor.loaded
        if self.keep_loaded and loaded is not None and not loaded.adopted:
            if self.sensor.is_attached:
                self.sensor.detach()
            return
        self.sensor.unload()
        if self.keep_loaded and self._done is not None:
            self._begin_loading()  # what was adopted could not be attached again

    def _is_ready(self) -> bool:
        """Whether it is attached; has it loaded, if it is not."""
        self._take_loaded()
        may_load = not self._is_refused and time.monotonic() >= self._not_before
        if self.sensor.loaded is None and self._loading is None and may_load:
            self._begin_loading()
            self._take_loaded()
        if self.sensor.loaded is not None and not self.sensor.is_attached:
            self._try(lambda: self.sensor.attach(self._folder))
        return self.sensor.is_attached

    def _begin_loading(self) -> None:
        if self._done is None:
            self._try(lambda: self.sensor.take(self.sensor.load(self._shared)))
        else:
            self._loading = LoadingThread(lambda wanted: self.sensor.load(self._shared, wanted), self._done)

    def _take_loaded(self) -> None:
        """The sensor, as soon as the thread has loaded it."""
        if self._loading is not None and self._loading.is_over:
            loading, self._loading = self._loading, None
            self._try(lambda: self.sensor.take(loading.take()))
            self._used = time.monotonic()

    def _try(self, step: Callable[[], object]) -> None:
        """What the kernel refuses once it refuses always: all parts are missing."""
        try:
            step()
            self._not_before = 0.0
        except NotLoaded as error:
            self._not_before = time.monotonic() + AGAIN_SECONDS
            self.sensor.missing = {part.name: str(error) for part in self.sensor.parts}
        except JobLensError as error:
            self.sensor.unload()
            self.sensor.missing = {part.name: str(error) for part in self.sensor.parts}
            self._is_refused = True

    def close(self) -> None:
        """Nothing of it stays in the kernel."""
        if self._loading is not None:
            self._loading.give_up()
            self._loading = None
        self.sensor.unload()


class LoadingThread:
    """Loads in a thread: others go on while the kernel checks the programs, which takes it 0.1 s and more.

    The thread does no more than that. It has not the priority of the one that it works for, which would wait for it
    whenever it holds Python's lock.
    """

    def __init__(self, load: Callable[[Callable[[], bool]], Loaded], done: Callable[[], object]) -> None:
        """`load` is given a question to ask now and then: whether it is still wanted. The thread calls `done`."""
        self._load, self._done = load, done
        self._is_wanted = True
        self._loaded: Loaded | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="sensor", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # the kernel gives up checking a program for which a signal waits
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._loaded = self._load(lambda: self._is_wanted)
        except Exception as error:  # for whoever takes it
            self._error = error
        self._done()

    @property
    def is_over(self) -> bool:
        """Whether there is something to take."""
        return self._loaded is not None or self._error is not None

    def take(self) -> Loaded:
        """What is loaded; it is waited for. Raises what loading raised."""
        self._thread.join()
        if self._loaded is None:
            raise self._error or RuntimeError("nothing was loaded")
        return self._loaded

    def give_up(self) -> None:
        """Nothing of it stays in the kernel."""
        self._is_wanted = False
        self._thread.join()
        if self._loaded is not None:
            self._loaded.unload()
