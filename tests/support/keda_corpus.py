"""ScaledObjects and other objects of KEDA with the fields that its documentation shows, from `tests/data/keda`."""

import functools
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[1] / "data" / "keda"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.stem != "other-triggers")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # each worker reads the files when it collects tests
OTHER = yaml.load((FOLDER / "other-triggers.yaml").read_text(), _LOADER)
"""Names of metadata fields by the type of a trigger that is not carried over: a list for each example."""


def documents(path: Path) -> list[dict[str, Any]]:
    """Returns the documents of a file."""
    return [each for each in yaml.load_all(path.read_text(), _LOADER) if each]


@functools.cache
def scaled_objects() -> list[dict[str, Any]]:
    """Returns the ScaledObjects of all files, of the version that is carried over."""
    return [
        each
        for path in FILES
        for each in documents(path)
        if (each["kind"], each["apiVersion"]) == ("ScaledObject", "keda.sh/v1alpha1")
    ]
