"""The files that people deploy, as documents."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from hpad import settings
from hpad.cli import run

ROOT = Path(__file__).resolve().parent.parent.parent
Json = dict[str, Any]


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def documents() -> Callable[[str], list[Json]]:
    """Every document of a YAML file; its path is relative to the checkout."""

    def read(path: str) -> list[Json]:
        return list(yaml.safe_load_all((ROOT / path).read_text(encoding="utf-8")))

    return read


@pytest.fixture(scope="session")
def only(documents: Callable[[str], list[Json]]) -> Callable[..., Json]:
    """The one document of that kind (and name) in a file."""

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
def told() -> Callable[[Sequence[str]], settings.Settings]:
    """What `hpad ARGUMENTS` understands, arguments beginning with "run"; wrong ones end the test."""
    parser = argparse.ArgumentParser()
    run.add_parser(parser.add_subparsers(required=True))
    return lambda arguments: run.read_settings(parser.parse_args(arguments))


@pytest.fixture(autouse=True, scope="module")
def few_logs() -> Iterator[None]:
    """Errors only: what hpad decides is not the matter here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40), cache_logger_on_first_use=False)
    yield
    structlog.reset_defaults()
