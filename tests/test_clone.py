"""A clone proves itself: nothing that the tests read stands outside of it."""

import gzip
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROWS = {
    "admission_v2": 1000,
    "convert_v1_v2": 500,
    "quantity": 1052,
    "quantity_format": 1000,
    "reconcile": 1200,
    "selector_object": 500,
    "selector_string": 1000,
    "timeline": 120,
}


@pytest.mark.parametrize("name", ROWS)
def test_no_recorded_row_is_missing(name: str) -> None:
    with gzip.open(ROOT / "tests" / "data" / "vectors" / f"{name}.jsonl.gz", "rb") as lines:
        assert sum(1 for _ in lines) == ROWS[name]


def test_every_recorded_exchange_is_there() -> None:
    folder = ROOT / "tests" / "data" / "fixtures"
    assert sum(1 for _ in folder.glob("*/*.json")) == 455


def test_no_file_reads_beside_the_clone() -> None:
    beside = re.compile(r"ROOT\s*\.parent\b")
    files = [path for folder in ("hpad", "adapters", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    wrong = [str(path) for path in files if beside.search(path.read_text("utf-8"))]
    assert not wrong, wrong
