"""docs/api.md and its reference describe the JSON API, its examples are answers, and the sample role may read it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect
import pytest
from msgspec.inspect import CollectionType, StructType, Type, UnionType, VarTupleType
from support import overlays

from hpad.engine.outlook.types import Outlook
from hpad.serve import api_types, listing
from hpad.serve.operations import OPERATIONS, PREFIX

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text("utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```json\n(.*?)^```$", PAGE, re.M | re.S)
TYPES = (api_types.HpaList, tuple[Outlook, ...])
"""The types of the examples, in their order."""
OWN = ("hpad.engine", "hpad.serve", "hpad.records", "hpad.telemetry")
"""Packages with types of the API; the others are those of Kubernetes."""


def fields(kind: Type) -> Iterator[str]:
    """Yields the names of all fields within a type, as the JSON has them."""
    if isinstance(kind, UnionType):
        for each in kind.types:
            yield from fields(each)
    elif isinstance(kind, CollectionType | VarTupleType):
        yield from fields(kind.item_type)
    elif isinstance(kind, StructType) and kind.cls.__module__.startswith(OWN):
        for field in kind.fields:
            yield field.encode_name
            yield from fields(field.type)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_each_path_its_parameters_and_fields_are_described(operation: Any) -> None:
    assert f"`{operation.path}`" in PAGE
    named = {word for text in re.findall(r"`([^`\n]+)`", PAGE + REFERENCE) for word in re.split(r"\W+", text)}
    named |= set(re.findall(r'"(\w+)":', "".join(EXAMPLES)))
    missing = {parameter.name for parameter in operation.parameters} - named
    if operation.answer is not None:
        missing |= set(fields(msgspec.inspect.type_info(operation.answer))) - named
    assert missing == set()


def test_each_state_and_order_is_described() -> None:
    assert [name for name in api_types.STATES if f"| `{name}` |" not in PAGE] == []
    assert [name for name in listing.SORTS if f"`{name}`" not in REFERENCE] == []


def test_each_answer_has_a_description() -> None:
    chapters = re.findall(r"^### (\w+)\n\n(.*)", REFERENCE, re.M)
    assert len(chapters) > 40
    assert [name for name, text in chapters if not text or text.startswith("|")] == []


@pytest.mark.parametrize("index", range(len(TYPES)))
def test_each_example_is_an_answer(index: int) -> None:
    """A field with another name, or of another type, would not come back."""
    assert len(EXAMPLES) == len(TYPES)
    given = msgspec.json.decode(EXAMPLES[index])
    assert msgspec.json.decode(msgspec.json.encode(msgspec.convert(given, TYPES[index]))) == given


def test_the_sample_role_may_read_page_and_api_and_nothing_else_of_the_port() -> None:
    roles = overlays.component("review")
    [rule] = next(each["rules"] for each in roles if each["metadata"]["name"] == "hpad-reader")
    assert rule == {"nonResourceURLs": ["/"], "verbs": ["get"]}
    assert all(operation.path.startswith(PREFIX) for operation in OPERATIONS)
