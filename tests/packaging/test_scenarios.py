"""tests/scenarios.md lists the acceptance scenarios, each with tests that exist and name it in their docstrings."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \|$", re.M)
ROWS = ROW.findall((ROOT / "tests" / "scenarios.md").read_text("utf-8"))
COUNT = 31


@functools.cache
def docstrings(file: str) -> dict[str, str]:
    """The docstring of each test in a file, "" for a test without one."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name: ast.get_docstring(node) or "" for node in functions}


def test_all_scenarios_are_listed_once_and_in_order() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, COUNT + 1))


@pytest.mark.parametrize(("number", "tests"), [(number, tests) for number, _, tests in ROWS])
def test_each_scenario_has_tests_that_name_it(number: str, tests: str) -> None:
    cited = re.findall(r"`([^`:]+)::(\w+)`", tests)
    assert cited, f"scenario {number} has no test"
    missing = [
        f"{file}::{name}"
        for file, name in cited
        if not re.search(rf"\b[Ss]cenarios?\b[^.]*\b{number}\b", docstrings(file).get(name, ""))
    ]
    assert missing == []
