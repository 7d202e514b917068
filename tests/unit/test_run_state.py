"""Who writes each column of the runs' state: as declared beside the column, and as the source has it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import condor_joblens
from condor_joblens.jobs.run_state import COLUMNS, STATE

ROOT = Path(condor_joblens.__file__).parent


def test_each_column_has_one_writer_and_names_it() -> None:
    declared = {column.name: {column.writer} for column in COLUMNS}
    assert found_writers() == declared


def test_the_table_is_the_type() -> None:
    assert [column.name for column in COLUMNS] == list(STATE.names or ())
    assert all(column.help for column in COLUMNS)


def found_writers() -> dict[str, set[str]]:
    """Column -> the modules with an assignment to it, below condor_joblens."""
    found: dict[str, set[str]] = {}
    for path in set(ROOT.rglob("*.py")) - {ROOT / "jobs" / "run_state.py"}:  # a new state's first values
        for node in ast.walk(ast.parse(path.read_text())):
            for column in assigned_columns(node):
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                found.setdefault(column, set()).add(module)
    return found


def assigned_columns(node: ast.AST) -> Iterator[str]:
    """Columns that a statement assigns: `state["due"][runs] = ...`, `node.runs.state["x"][run] += 1`."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    for target in targets:
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            yield from (column for each in ast.walk(part) if (column := column_of(each)))


def column_of(node: ast.AST) -> str:
    """The column, if this is `state["column"]` with or without indices between; else nothing."""
    if not isinstance(node, ast.Subscript):
        return ""
    table: ast.expr = node.value
    while isinstance(table, ast.Subscript):
        table = table.value
    name = table.id if isinstance(table, ast.Name) else table.attr if isinstance(table, ast.Attribute) else ""
    if name == "offsets":  # what sample/totals.py calls the column `offset`
        return "offset"
    is_column = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
    return node.slice.value if name == "state" and is_column else ""


def test_an_assignment_is_found_however_it_is_written() -> None:
    source = """
state["a"] = 1
node.runs.state["b"][run] += 1
x["c"], runs.state[run]["d"] = state["e"] = 1, 2
state["f"][run : run + 1].view("u1")[:] = 0
offsets[column][run] = 5
print(state["g"])
"""
    found = {column for node in ast.walk(ast.parse(source)) for column in assigned_columns(node)}
    assert found == {"a", "b", "d", "e", "f", "offset"}
