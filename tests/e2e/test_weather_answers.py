"""Answers of the API server that are refusals, late, or none. See `e2e.steady` and `e2e.test_weather`."""

import asyncio
from typing import Any

import pytest
from e2e.steady import QUICK, Recovered, Steady
from e2e.test_weather import SPELL


@pytest.fixture
def leisure() -> None:
    """The timeouts are those of the short period, so that a fault lasts for several of them."""


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        ("an API server that answered 429", {"status": 429, "retry_after": 1}),
        ("an API server that answered 500", {"status": 500}),
        ("an API server that answered 504", {"status": 504}),
        ("an API server that answered slowly", {"delay": 0.3}),
        ("half answers", {"truncate": True}),
        ("connections that were reset", {"reset": True}),
        ("answers that were none", {"body": "<html>maintenance</html>"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_faulty_answers(steady: Steady, recovered: Recovered, what: str, fault: dict[str, Any]) -> None:
    """The fault applies to all requests: lists, watches, metrics and writes."""
    await steady.world.hpad(reflector_options=QUICK)
    await steady.begin()
    rule = steady.world.cluster.faults.add(times=None, **fault)
    steady.world.cluster.faults.drop_watches()
    await asyncio.sleep(SPELL)
    await steady.world.until(lambda: rule.hits)
    steady.world.cluster.faults.clear()
    await steady.end(what, recovered)
