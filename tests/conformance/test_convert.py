"""autoscaling/v1 to v2 and back, against what Kubernetes answers: vectors, and a real API server's recorded answers."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.hpas import decoded

from hpad.api import hpa as v2
from hpad.api import older

Vectors = Callable[[str], Iterator[dict[str, Any]]]
Record = Callable[[str, object], None]


def test_vectors(vectors: Vectors, record_property: Record) -> None:
    rows = list(vectors("convert_v1_v2"))
    wrong = [row for row in rows if v2.to_builtins(decoded(row["v1"])) != row["v2"]]
    record_property("conformance", ("convert_v1_v2", len(rows) - len(wrong), len(rows)))
    assert not wrong, "\n".join(map(str, wrong[:5]))


def pairs(folder: Path) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The same HPA as a real server gives it in v1 and in v2."""
    return [
        (
            path.name,
            json.loads(path.read_text())["body"],
            json.loads((folder / path.name.replace("v1", "v2")).read_text())["body"],
        )
        for path in sorted(folder.glob("get_v1_*.json"))
    ]


def test_v1_is_written_as_a_real_server_writes_it(recordings: Path) -> None:
    found = pairs(recordings / "hpa")
    for name, old, new in found:
        ours = v2.to_builtins(older.to_v1(decoded(new)))
        assert (ours["spec"], ours["status"]) == (old["spec"], old["status"]), name
        assert ours["metadata"].get("annotations") == old["metadata"].get("annotations"), name
    assert found


def test_v1_of_a_real_server_reads_as_its_v2(recordings: Path) -> None:
    found = pairs(recordings / "hpa")
    assert found
    for name, old, new in found:
        ours = v2.to_builtins(decoded(old))
        # v1 has no position for the CPU target: it comes last.
        metrics = sorted(
            new["spec"].pop("metrics"),
            key=lambda metric: metric["resource"]["name"] == "cpu" if metric["type"] == "Resource" else False,
        )
        assert ours["spec"].pop("metrics") == metrics, name
        assert (ours["spec"], ours["status"]) == (new["spec"], new["status"]), name
        assert "annotations" not in ours["metadata"], name
