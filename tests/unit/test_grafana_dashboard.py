"""The dashboard of Grafana is that of its script, and no panel draws a line for each of thousands of jobs or owners."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "grafana"


def test_the_file_is_the_one_that_the_script_writes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FOLDER / "make_dashboard", tmp_path / "joblens.json"], check=True, timeout=60)
    assert (tmp_path / "joblens.json").read_text() == (FOLDER / "joblens.json").read_text(), "run make_dashboard"


def test_panels_of_jobs_and_owners_draw_the_twenty_greatest() -> None:
    panels = json.loads((FOLDER / "joblens.json").read_text())["panels"]
    drawn = [target for panel in panels if panel["type"] == "timeseries" for target in panel["targets"]]
    many = [each["expr"] for each in drawn if "{{owner}}" in each["legendFormat"]]
    assert len(many) > 10 and all(query.lstrip("-").startswith("topk(20, ") for query in many)
