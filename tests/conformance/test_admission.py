"""Defaulting and validation against what Kubernetes answers: vectors, and a real API server's recorded answers."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hpad.api import hpa as v2
from hpad.api import older
from hpad.api.problem import Problem
from hpad.manifests import hpas
from hpad.manifests.documents import Document

Vectors = Callable[[str], Iterator[dict[str, Any]]]
Record = Callable[[str, object], None]
Row = dict[str, Any]


def load(value: Row, *, scale_to_zero: bool = False) -> hpas.Loaded:
    return hpas.load(Document("row", 0, 1, value), scale_to_zero=scale_to_zero)


def admitted_input(row: Row) -> Row:
    """Returns the input that Kubernetes validated.

    Go omits an empty list when it writes an object, so `{"policies": []}` is `{}` in 41 of 1,000 rows. The errors show
    which rows these are: absent policies would have got defaults, and no error.
    """
    spec: Row = copy.deepcopy(row["in"])
    missed = {error["field"] for error in row["errors"] if "must specify at least one Policy" in error["message"]}
    for direction, rules in (spec["spec"].get("behavior") or {}).items():
        if f"spec.behavior.{direction}.policies" in missed:
            rules.setdefault("policies", [])
    return spec


def written(error: Problem) -> Row:
    return {"type": error.reason, "field": error.path, "message": error.text}


def answers(row: Row) -> Row:
    spec = admitted_input(row)
    plain, zero = load(spec), load(spec, scale_to_zero=True)
    assert plain.hpa is not None
    return {
        "in": row["in"],
        "defaulted": hpas.without_empty_policies(v2.to_builtins(plain.hpa)),
        "errors": [written(error) for error in plain.errors],
        "errorsScaleToZero": [written(error) for error in zero.errors],
    }


def test_vectors(vectors: Vectors, record_property: Record) -> None:
    rows = list(vectors("admission_v2"))
    wrong = [f"{row}\n  ours: {ours}" for row in rows if (ours := answers(row)) != row]
    record_property("conformance", ("admission_v2", len(rows) - len(wrong), len(rows)))
    assert not wrong, "\n".join(wrong[:5])


def matching(folder: Path, pattern: str) -> list[tuple[str, Row]]:
    return [(path.name, json.loads(path.read_text())) for path in sorted(folder.glob(pattern))]


def posted(exchange: Row) -> Row:
    """The object of a request; the server takes the namespace from the URL where the object names none."""
    body: Row = exchange["request"]["body"]
    return {**body, "metadata": {"namespace": "fix", **body["metadata"]}}


def test_what_a_real_server_refuses_is_refused_in_its_words(recordings: Path) -> None:
    exchanges = matching(recordings, "invalid/*.json")
    for name, exchange in exchanges:
        errors = load(posted(exchange)).errors
        ours = [(error.reason, error.path, error.text.removeprefix(f"{error.path}: ")) for error in errors]
        causes = exchange["body"]["details"]["causes"]
        assert ours == [(cause["reason"], cause["field"], cause["message"]) for cause in causes], name
    assert len(exchanges) == 31


def test_what_a_real_server_takes_is_filled_in_as_there(recordings: Path) -> None:
    exchanges = [(name, each) for name, each in matching(recordings, "hpa/create_*.json") if each["status"] == 201]
    for name, exchange in exchanges:
        if exchange["request"]["body"]["spec"].get("colour"):
            continue  # taken with a warning; files are read strictly
        loaded = load(posted(exchange))
        assert loaded.hpa is not None, name
        spec = loaded.hpa if exchange["body"]["apiVersion"] == "autoscaling/v2" else older.to_v1(loaded.hpa)
        ours = v2.to_builtins(spec)
        assert not loaded.errors, name
        assert (ours["spec"], ours["status"]) == (exchange["body"]["spec"], exchange["body"]["status"]), name
    assert len(exchanges) > 10


def test_an_unknown_field_has_the_words_of_a_strict_server(recordings: Path) -> None:
    [(_, exchange)] = matching(recordings, "hpa/create_unknown_field_strict_400.json")
    [error] = load(posted(exchange)).errors
    words = exchange["body"]["message"].partition(": ")[2]
    assert error.path == "spec.colour"
    assert words in error.text


def test_a_field_given_twice_has_the_words_of_a_strict_server(recordings: Path) -> None:
    from hpad.manifests import documents

    [(_, exchange)] = matching(recordings, "hpa/create_duplicate_field_strict_400.json")
    [document] = documents.parse(exchange["request"]["body"].encode(), "row", ".yaml")
    words = exchange["body"]["message"].partition(": ")[2]
    assert any(words in error.text for error in hpas.load(document).errors)
