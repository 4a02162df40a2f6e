"""docs/reference is current, and describes every reason and event of the vectors."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tools import diagram, kind, reference, sample


def test_the_reference_pages_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make docs` writes them."""
    monkeypatch.setenv("COLUMNS", "")  # set meanwhile, and restored for the tests that follow in this process
    assert len(reference.pages()) == 8
    assert reference.stale() == []


def test_the_definition_of_the_kind_is_current() -> None:
    """`make docs` writes it."""
    assert kind.FILE.read_text("utf-8") == kind.text()


def test_the_diagram_of_the_imports_is_current() -> None:
    """`make docs` writes it."""
    page = diagram.PAGE.read_text("utf-8")
    assert "controller --> election" in page
    assert diagram.written(page) == page


def test_the_sample_has_the_meaning_of_every_setting() -> None:
    """`make docs` writes them, and adds a setting that the file lacks below the one before it."""
    text = sample.FILE.read_text("utf-8")
    assert sample.current(text) == text
    lacking = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("workers: "))
    assert sample.current(lacking) == text
    assert sample.current(text.replace("# concurrent reconciles", "# threads")) == text


def _steps(vectors: Callable[[str], Iterator[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    for scenario in vectors("reconcile"):
        yield from (step["expect"] for step in scenario["steps"])


def test_every_condition_reason_and_event_of_the_vectors_is_described(vectors: Any) -> None:
    conditions, reasons, events = set(), set(), set()
    for expected in _steps(vectors):
        for condition in (expected["statusUpdate"] or {}).get("conditions", ()):
            conditions.add(condition["type"])
            reasons.add(condition["reason"])
        events |= {re.sub(r"Get\w+Metric$", "Get…Metric", reason) for _, reason, _ in expected["events"]}
    assert len(reasons) > 10
    assert conditions <= set(reference.CONDITIONS)
    assert reasons <= set(reference.REASONS) | set(reference.CONDITIONS)
    assert events <= set(reference.EVENTS)
