"""The deployed files as documents."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from hpad import cli, settings
from hpad.cli import flags

ROOT = Path(__file__).resolve().parent.parent.parent
Json = dict[str, Any]


@pytest.fixture(scope="session")
def root() -> Path:
    """Returns the root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def documents() -> Callable[[str], list[Json]]:
    """Returns a function that reads all documents of a YAML file; its path is relative to the root."""

    def read(path: str) -> list[Json]:
        return list(yaml.load_all((ROOT / path).read_text(encoding="utf-8"), yaml.CSafeLoader))

    return read


@pytest.fixture(scope="session")
def only(documents: Callable[[str], list[Json]]) -> Callable[..., Json]:
    """Returns a function that reads the only document of a kind (and name) in a file."""

    def find(path: str, kind: str, name: str | None = None) -> Json:
        found = [
            each
            for each in documents(path)
            if each["kind"] == kind and (name is None or each["metadata"]["name"] == name)
        ]
        assert len(found) == 1, f"{path}: {len(found)} of kind {kind}"
        return found[0]

    return find


@pytest.fixture
def parsed() -> Callable[[Sequence[str]], settings.Settings]:
    """Returns a function that reads settings from the arguments of `hpad`, beginning with "run"."""
    parser = argparse.ArgumentParser()
    cli.add(parser.add_subparsers(required=True), "run")
    return lambda arguments: flags.read(parser.parse_args(arguments))


@pytest.fixture(autouse=True, scope="module")
def few_logs() -> Iterator[None]:
    """Logs only errors, because decisions are not the subject here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40), cache_logger_on_first_use=False)
    yield
    structlog.reset_defaults()
