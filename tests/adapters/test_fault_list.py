"""`faults.md` names a test for each fault of each adapter."""

import ast
import re
from pathlib import Path

import pytest
from support.faulty_servers import CASES

from hpad.sources import plugins

FOLDER = Path(__file__).parent
_LINK = re.compile(r"\[([^]]+)\]\((\w+\.py)\)")


def table() -> dict[str, dict[str, str]]:
    """Returns the cells by source and fault."""
    lines = (FOLDER / "faults.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    heads, _, *body = rows
    return {row[0]: dict(zip(heads[1:], row[1:], strict=True)) for row in body}


def functions(file: str) -> set[str]:
    """Returns the names of the functions of a file."""
    tree = ast.walk(ast.parse((FOLDER / file).read_text()))
    return {each.name for each in tree if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_adapter_has_a_row() -> None:
    rows = table()
    assert {source.partition(" ")[0] for source in rows} == set(plugins.names())


@pytest.mark.parametrize(("source", "cells"), table().items())
def test_each_fault_has_a_test(source: str, cells: dict[str, str]) -> None:
    for fault, cell in cells.items():
        named = _LINK.findall(cell)
        assert named or cell.startswith(("●", "none")), fault
        assert cell.startswith("●") == (source in CASES.get(fault, ())), fault
        for text, file in named:
            assert f"test_{text.replace(' ', '_')}" in functions(file), (fault, text)
