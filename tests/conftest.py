"""What all rooms share: where the conformance vectors and fixtures lie."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("HPAD_SHARED", ROOT.parent / "shared"))


def read_vectors(name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of one vector file, e.g. `read_vectors("quantity")`; skips the test where it is not there."""
    path = SHARED / "vectors" / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no vectors at {path}; point HPAD_SHARED at the folder that holds vectors/")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


@pytest.fixture(scope="session")
def vectors() -> Any:
    """The function `read_vectors`, for tests that take it as a fixture."""
    return read_vectors


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder that holds vectors/ and fixtures/."""
    return SHARED
