"""The page that the alerts link to says something about each of them."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_each_alert_links_to_a_part_of_the_page_that_is_there() -> None:
    rules = (DOCS / "prometheus" / "joblens.rules.yml").read_text()
    titles = re.findall(r"^## (\w+)$", (DOCS / "alerts.md").read_text(), re.MULTILINE)
    alerts = re.findall(r"alert: (\w+)", rules)
    links = re.findall(r"runbook_url: file:///usr/share/joblens/prometheus/alerts\.md#(\w+)$", rules, re.MULTILINE)
    assert len(alerts) > 5 and links == [alert.lower() for alert in alerts]
    assert sorted(titles) == sorted(alerts)
