"""The OpenAPI document: it is valid, describes every path, and the answers conform to it."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import openapi_spec_validator
import pytest
from support import api_world
from support.api_world import QUEUE, World, hpa, scaled_up
from support.engine import Workload, series
from support.environment import EFFORT

from hpad.serve import listing, operations, parameters
from hpad.serve.limits import CONNECTION_OPTIONS
from hpad.serve.operations import OPERATIONS, PREFIX

DOCUMENT: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(operations.document()))
SCHEMAS = DOCUMENT["components"]["schemas"]
EXAMPLES = 3 * EFFORT
"""Random requests per operation and phase."""
PATIENCE = 120
"""Seconds that a busy machine may need for an answer."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """HPAs with and without decisions, one of them that of the examples."""
    async with api_world.opened() as made:
        made.decided(scaled_up(), "checkout", "shop")
        work = Workload(QUEUE, replicas=2)
        for value in (20, 60, 5, 95):
            work.reconcile(series(value), after=15)
            made.decided(work)
        made.source.put(hpa("new"))
        yield made


async def test_the_document_is_served_and_valid(world: World) -> None:
    status, document = await world.get("openapi.json")
    assert (status, document) == (200, DOCUMENT)
    openapi_spec_validator.validate(document)


async def test_each_answer_conforms_to_its_schema(world: World) -> None:
    assert set(DOCUMENT["paths"]) == {operation.path for operation in OPERATIONS}
    for path, item in DOCUMENT["paths"].items():
        content = item["get"]["responses"]["200"]["content"]
        if "application/json" not in content:
            continue
        names = {parameter["name"]: parameter.get("example") for parameter in item["get"]["parameters"]}
        status, answer = await world.get(path.removeprefix(PREFIX).format(**names))
        assert status == 200, path
        jsonschema.validate(answer, {**content["application/json"]["schema"], "components": DOCUMENT["components"]})


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _references(each)


async def test_errors_are_documented(world: World) -> None:
    documented = DOCUMENT["paths"][f"{PREFIX}hpas/{{namespace}}/{{name}}"]["get"]["responses"]
    for path, host, status in (
        ("hpas/shop/checkout?x=1", "localhost", 400),
        ("hpas/shop/other", "localhost", 404),
        ("hpas/shop/checkout", "other.example", 421),
    ):
        async with world.session.get(f"{world.server.url}{PREFIX}{path}", headers={"Host": host}) as response:
            assert response.status == status
            jsonschema.validate(await response.json(), SCHEMAS["Error"])
        assert str(status) in documented


def test_every_type_has_a_description_and_is_used() -> None:
    assert [name for name, schema in SCHEMAS.items() if not schema.get("description")] == []
    used = {reference.rpartition("/")[2] for reference in _references(DOCUMENT)}
    assert set(SCHEMAS) - {"Summary"} <= used
    assert (
        "Summary"
        in DOCUMENT["paths"][f"{PREFIX}decisions"]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"][
            "description"
        ]
    )


def test_descriptions_name_fields_as_the_json_does() -> None:
    snake = re.compile(r"`[a-z]+(_[a-z]+)+`")
    for name, schema in SCHEMAS.items():
        # "scale_up" is a value.
        assert [found[0] for found in snake.finditer(schema["description"]) if "scale_" not in found[0]] == [], name


def test_fields_that_may_be_left_out_are_not_null() -> None:
    properties = SCHEMAS["Summary"]["properties"]
    assert properties["lastScaleTime"] == {"type": "string", "format": "date-time"}
    assert properties["lastDecision"] == {"$ref": "#/components/schemas/LastDecision"}
    assert {"minReplicas", "states"} <= set(SCHEMAS["Summary"]["required"])
    assert {"type": "null"} in SCHEMAS["SourceReport"]["properties"]["lastError"]["anyOf"]


def test_every_parameter_has_a_description_and_a_schema() -> None:
    for path, item in DOCUMENT["paths"].items():
        for parameter in item["get"]["parameters"]:
            assert parameter["description"].endswith("."), (path, parameter)
            assert parameter["schema"]["type"] in ("string", "integer", "boolean", "array"), (path, parameter)


@pytest.mark.parametrize("sort", [*listing.SORTS, *(f"-{name}" for name in listing.SORTS)])
async def test_each_order_gives_a_continue_that_conforms(world: World, sort: str) -> None:
    _, answer = await world.get(f"hpas?limit=1&sort={sort}")
    schema = next(parameter.schema for parameter in parameters.HPAS if parameter.name == "continue")
    jsonschema.validate(answer["continue"], schema)


def _is_too_long(curl: str) -> bool:
    """Whether a request line is refused for its length, whatever its parameters are; no schema can say that."""
    return len(curl) > CONNECTION_OPTIONS["max_line_size"]


def found(url: str) -> list[str]:
    """Returns all failures that schemathesis finds, as command lines of curl with their messages. Blocks."""
    import schemathesis  # late: its import takes half a second, in each worker
    from schemathesis.engine import Status, events, from_schema

    config = schemathesis.Config.from_dict(
        {
            "seed": 1,
            "generation": {"max-examples": EXAMPLES, "database": "none"},
            # No finding is about how fast the machine is.
            "request-timeout": PATIENCE,
            "suppress-health-check": ["too_slow"],
        }
    )
    schema = schemathesis.openapi.from_url(f"{url}{PREFIX}openapi.json", config=config)
    # A stream has no end; tests/serve/test_stream.py reads it.
    schema = schema.exclude(path=f"{PREFIX}decisions")
    failures, cases = list[str](), 0
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            cases += len(event.recorder.cases)
            failures += [
                f"{check.failure_info.failure.message} {check.failure_info.code_sample}"
                for checks in event.recorder.checks.values()
                for check in checks
                if check.status is Status.FAILURE
                and check.failure_info is not None
                and not _is_too_long(check.failure_info.code_sample)
            ]
        elif isinstance(event, events.NonFatalError | events.FatalError):
            failures.append(str(event))
    assert cases > EXAMPLES * (len(OPERATIONS) - 2)
    return failures


async def test_schemathesis_finds_nothing(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Random valid and invalid requests get documented answers, and no bug."""
    monkeypatch.chdir(tmp_path)
    assert await asyncio.to_thread(found, world.server.url) == []
