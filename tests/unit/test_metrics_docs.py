"""The generated pages say what the tables say, and the tables are fit to be published."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from condor_joblens.cli import reference
from condor_joblens.common.config import KNOBS
from condor_joblens.model.metrics import FIELDS, METRICS, SINGLE

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", reference.pages())
def test_the_page_is_what_the_table_makes(name: str) -> None:
    made = "run: python -m condor_joblens.cli.reference docs/"
    assert (DOCS / name).read_text(encoding="utf-8") == reference.pages()[name], made


def test_the_pages_have_everything() -> None:
    metrics, configuration = reference.metrics_page(), reference.configuration_page()
    for metric in METRICS:
        assert f"`{metric.pattern}`" in metrics and metric.help in metrics
        assert f"`{metric.member or metric.pattern}`" in metrics
    for field in FIELDS:
        assert field.help in metrics
    for knob in KNOBS:
        assert f"`{knob.name}`" in configuration and knob.help in configuration


def test_the_folder_is_written(tmp_path: Path) -> None:
    assert reference.main([str(tmp_path)]) == 0
    assert {str(page.relative_to(tmp_path)) for page in tmp_path.rglob("*.*")} == set(reference.pages())
    assert reference.main([]) == 2


def test_names_are_unique_and_of_their_forms() -> None:
    columns = [field.name for field in FIELDS] + [metric.column for metric in METRICS]
    assert len(set(columns)) == len(columns) and columns == SINGLE
    assert all(re.fullmatch(r"[a-z][a-z_]*", column) for column in columns)
    attributes = [metric.path for metric in METRICS]
    assert len({attribute.lower() for attribute in attributes}) == len(attributes), "ClassAds know no case"
    assert all(re.fullmatch(r"[A-Z][A-Za-z]*(\.[A-Z][A-Za-z]*){1,2}", attribute) for attribute in attributes)
    series = [(metric.family, metric.label) for metric in METRICS]
    assert len(set(series)) == len(series)


def test_a_unit_that_a_name_tells_is_its_unit() -> None:
    for metric in METRICS:
        for unit, word in (("seconds", "Seconds"), ("bytes", "Bytes"), ("cores", "Cores")):
            assert metric.name.endswith(word) == (metric.unit == unit), metric


def test_an_option_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert reference.main(["--help"]) == 2
    assert "usage" in capsys.readouterr().err and not list(tmp_path.iterdir())
