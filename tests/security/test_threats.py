"""The tests that threats.md names exist, and each threat has one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("threats.md")
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE.read_text())


@pytest.mark.parametrize(("file", "test"), sorted(set(NAMED)))
def test_tests_named_by_the_threat_model_exist(file: str, test: str) -> None:
    assert re.search(rf"^\s*(?:async )?def {test}\b" if test else "def test_", (ROOT / file).read_text(), re.MULTILINE)


def test_every_threat_has_a_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    threats = [row for row in rows if not row.startswith(("| threat", "| ---"))]
    assert len(threats) > 30
    assert [row for row in threats if "`tests/" not in row] == []
