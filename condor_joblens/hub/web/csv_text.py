"""Rows as CSV for spreadsheets: no cell of a job's words is a formula there.

A text that begins with = + - @, a tab or a carriage return is a formula to some program that opens the file:
https://owasp.org/www-community/attacks/CSV_Injection. It gets an apostrophe before it. Numbers stay as they are.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

KIND = "text/csv; charset=utf-8"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%", "＝", "＋", "－", "＠")


def harmless(cell: Any) -> Any:
    """What stands in the file for a cell: a number as it is, a text that is a formula nowhere."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, (int, float)):
        return cell
    text = cell if isinstance(cell, str) else json.dumps(cell)
    text = text.replace("\0", "")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A line of names, and a line a row; what a row lacks is empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow([harmless(name) for name in columns])
    writer.writerows([harmless(row.get(name)) for name in columns] for row in rows)
    return file.getvalue()
