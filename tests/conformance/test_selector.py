"""Label selectors against the answers of Kubernetes."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from hpad.api import selector

Vectors = Callable[[str], Iterator[dict[str, Any]]]
Record = Callable[[str, object], None]


def text_answers(row: dict[str, Any]) -> dict[str, Any]:
    """The result of hpad for a selector's text, under the keys of the vectors."""
    try:
        parsed = selector.parse(row["in"])
    except selector.SelectorError as error:
        return {"in": row["in"], "error": str(error)}
    cases = [{"labels": case["labels"], "matches": parsed.matches(case["labels"])} for case in row.get("cases", [])]
    return {"in": row["in"], "canonical": str(parsed), "cases": cases}


def object_answers(row: dict[str, Any]) -> dict[str, Any]:
    """The result of hpad for a LabelSelector object, under the keys of the vectors."""
    parsed_input = msgspec.convert(row["in"], selector.LabelSelector | None)
    answers = {"in": row["in"], "goPlusV": selector.go_plus_v(parsed_input)}
    try:
        parsed = selector.from_object(parsed_input)
    except selector.SelectorError as error:
        return {**answers, "error": str(error)}
    return {**answers, "string": str(parsed), "empty": parsed.empty, "selectable": parsed.selectable}


def check(rows: list[dict[str, Any]], answers: Callable[[dict[str, Any]], dict[str, Any]]) -> list[str]:
    """The rows that differ, with the result of hpad."""
    return [f"{row}\n  ours: {ours}" for row in rows if (ours := answers(row)) != row]


def test_strings(vectors: Vectors, record_property: Record) -> None:
    rows = list(vectors("selector_string"))
    wrong = check(rows, text_answers)
    record_property("conformance", ("selector_string", len(rows) - len(wrong), len(rows)))
    assert not wrong, "\n".join(wrong)


def test_objects(vectors: Vectors, record_property: Record) -> None:
    rows = list(vectors("selector_object"))
    wrong = check(rows, object_answers)
    record_property("conformance", ("selector_object", len(rows) - len(wrong), len(rows)))
    assert not wrong, "\n".join(wrong)
