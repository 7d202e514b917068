"""Plug-ins that fail in each of their methods, end to end, beside a Kafka that works: all of it in one process."""

from __future__ import annotations

from pathlib import Path

from faults import EVENTS, Impatient, Run
from servers import Kafka
from sinks import until

AILMENTS = ("raises", "exits", "blocks")
METHODS = ("init", "start", "deliver", "close")
NAMES = tuple(f"{method}{ailment}" for method in METHODS for ailment in AILMENTS)

PLUGIN = f"""
import os, sys, time
from condor_joblens.sinks import *

FOLDER = os.environ["FOLDER"]

class Sick(Sink):
    "Ails in the method that its name has, as long as there is a file `sick`; notes how many events it has had."

    takes = frozenset({{RecordKind.EVENT}})

    def __init__(self, settings, context):
        self.ails("init")
        super().__init__(settings, context)
        self.seen = set()

    def start(self):
        self.ails("start")

    def deliver(self, batch):
        self.ails("deliver")
        self.seen.update(record.id for record in batch if b'"Kind":"Loss"' not in record.json)
        with open(f"{{FOLDER}}/{{self.name}}.new", "w") as file:
            file.write(str(len(self.seen)))
        os.rename(f"{{FOLDER}}/{{self.name}}.new", f"{{FOLDER}}/{{self.name}}.count")
        return DELIVERED

    def close(self, seconds):
        self.ails("close")

    def ails(self, method):
        if not self.name.startswith(method) or not os.path.exists(f"{{FOLDER}}/sick"):
            return
        if self.name.endswith("raises"):
            raise RuntimeError("as was asked for")
        if self.name.endswith("exits"):
            sys.exit(1)
        time.sleep(3600)

class Leaks(Sick):
    "Keeps 8 MB of each batch: of twelve, and of all once there is a file `seen`."

    name = "leaks"
    kept = []

    def deliver(self, batch):
        if os.path.exists(f"{{FOLDER}}/sick") and (len(self.kept) < 12 or os.path.exists(f"{{FOLDER}}/seen")):
            self.kept.append(b"x" * 8_000_000)
        return super().deliver(batch)

for name in {NAMES!r}:
    globals()[name] = type(name, (Sick,), {{"name": name}})
"""


class Plugged(Impatient):
    """Has the plug-ins, and takes one for stuck after three seconds."""

    program = "from condor_joblens.export import delivery\ndelivery.STUCK_SECONDS = 3.0\n" + Impatient.program

    def start(self) -> None:
        info = self.folder / "site" / "sick_sink-1.dist-info"
        info.mkdir(exist_ok=True)
        lines = "".join(f"{name} = sick_sink:{name}\n" for name in NAMES) + "leaks = sick_sink:Leaks\n"
        (info / "entry_points.txt").write_text(f"[condor_joblens.sinks]\n{lines}")
        (info / "METADATA").write_text("Name: sick_sink\nVersion: 1\n")
        (self.folder / "site" / "sick_sink.py").write_text(PLUGIN)
        super().start()

    def fall_ill(self) -> None:
        (self.folder / "sick").touch()

    def recover(self) -> None:
        (self.folder / "sick").unlink()

    def had(self, name: str) -> int:
        """Events that a plug-in has had since it was started, once each."""
        path = self.folder / f"{name}.count"
        return int(path.read_text()) if path.exists() else 0


def test_plug_ins_that_fail_are_named_and_cost_the_others_nothing(kafka: Kafka, place: Path) -> None:
    run = Run(kafka, place, Plugged, NAMES)
    exporter = run.exporter
    assert isinstance(exporter, Plugged)
    exporter.fall_ill()
    well = {"kafka", *(name for name in NAMES if name.startswith("close"))}
    with run:
        run.node.live(6, EVENTS)
        until(lambda: run.working() == {name: name in well for name in ("kafka", *NAMES)}, "the sick to be named")
        # the orderly end too, whatever `close` does
        run.check_whole(run.end())
        for name in NAMES:
            assert name in well or exporter.had(name) == 0
        exporter.recover()
        exporter.start()
        for name in set(NAMES) - well:
            until(lambda name=name: exporter.had(name) == run.node.events, f"all events in {name}, once it is well")
        until(lambda: all(run.working().values()), "all to work")
        exporter.stop()


def test_a_plug_in_that_leaks_is_visible_and_costs_a_new_start(kafka: Kafka, place: Path) -> None:
    bound = 256 << 20
    run = Run(kafka, place, Plugged, ["leaks"], JOBLENS_EXPORT_MAX_BYTES=str(bound))
    exporter = run.exporter
    assert isinstance(exporter, Plugged)
    with run:
        before = run.page()["joblens_export_resident_bytes"]
        exporter.fall_ill()

        def leak() -> None:
            until(lambda: run.page()["joblens_export_resident_bytes"] > before + 80_000_000, "the leak to be seen")
            (exporter.folder / "seen").touch()
            assert exporter.process
            assert exporter.process.wait(60) == 1, exporter.said()
            exporter.recover()
            exporter.start()  # as condor_master does

        run.meanwhile(12, leak)
        run.check_whole(run.end(), kills=1)
    assert f"more than JOBLENS_EXPORT_MAX_BYTES = {bound}: a sink leaks; it starts anew" in exporter.said()
