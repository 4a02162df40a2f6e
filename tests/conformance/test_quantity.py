"""Quantities against the answers of Kubernetes."""

from collections.abc import Callable, Iterator
from typing import Any

from hpad.api.quantity import Format, Quantity, QuantityError, parse_milli

Vectors = Callable[[str], Iterator[dict[str, Any]]]
Record = Callable[[str, object], None]


def answers(text: str) -> dict[str, Any]:
    """The result of hpad for a text, under the keys and in the types of the vectors."""
    try:
        quantity = Quantity.parse(text)
    except QuantityError as error:
        return {"in": text, "error": str(error)}
    return {
        "in": text,
        "canonical": str(quantity),
        "milli": str(quantity.milli()),
        "value": str(quantity.value()),
        "float": float(quantity),
    }


def test_parsing(vectors: Vectors, record_property: Record) -> None:
    rows = list(vectors("quantity"))
    wrong = []
    for row in rows:
        if "float" in row:
            row["float"] = float(row["float"])  # JSON writes a whole number without its point, rounded
        ours = answers(row["in"])
        if {key: ours.get(key) for key in row} != row or ("error" in ours) != ("error" in row):
            wrong.append(f"{row}\n  ours: {ours}")
    record_property("conformance", ("quantity", len(rows) - len(wrong), len(rows)))
    assert not wrong, "\n".join(wrong)


def test_the_fast_path_agrees(vectors: Vectors) -> None:
    rows = [row for row in vectors("quantity") if "milli" in row]
    assert len(rows) > 100
    for row in rows:
        assert parse_milli(row["in"]) == parse_milli(row["in"].encode()) == int(row["milli"]), row


def test_printing(vectors: Vectors, record_property: Record) -> None:
    rows = list(vectors("quantity_format"))
    wrong = []
    for row in rows:
        milli = int(row["milli"])
        decimal = str(Quantity.from_milli(milli))
        binary = str(Quantity.from_milli(milli, Format.BINARY_SI))
        if (decimal, binary) != (row["decimalSI"], row["binarySI"]):
            wrong.append(f"{row}\n  ours: {decimal}, {binary}")
    record_property("conformance", ("quantity_format", len(rows) - len(wrong), len(rows)))
    assert not wrong, "\n".join(wrong)
