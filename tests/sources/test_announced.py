"""Announced queries: a call for their group answers them before they are asked; in virtual time."""

import asyncio
from collections.abc import Sequence

from support.scripted_source import A, B, C, Grouped, opened
from support.virtual_time import in_virtual_time

from hpad import testing
from hpad.adapter import EXTERNAL, RESOURCE, HPAIdentity, Query


@in_virtual_time
async def test_an_announced_query_is_answered_by_the_next_call_for_its_group():
    adapter = Grouped()
    source = opened(adapter, fresh=5.0, period=15.0)
    source.announce(A)
    source.announce(B)
    await source.ask(C)
    await asyncio.sleep(4)
    await source.ask(A)
    await asyncio.sleep(2)
    await source.ask(A)  # the answer of the first call is stale, and C comes in nine seconds
    assert adapter.names == ["abc", "ab"]


@in_virtual_time
async def test_an_announcement_of_a_query_that_has_come_changes_nothing():
    adapter = Grouped()
    source = opened(adapter, fresh=5.0, period=15.0)
    await source.ask(A)
    source.announce(A)
    await asyncio.sleep(6)
    await source.ask(B)
    assert adapter.names == ["a", "b"]


@in_virtual_time
async def test_an_announced_query_is_that_of_its_hpa_where_answers_depend_on_it():
    web = HPAIdentity(name="web", target_kind="Deployment", target_name="web")
    seen: list[Query] = []

    async def behave(queries: Sequence[Query]) -> None:
        seen.extend(queries)

    adapter = Grouped(behave)
    adapter.personal = lambda query: True
    source = opened(adapter, fresh=5.0, period=15.0)
    source.announce(A, web)
    await source.ask(B, web)
    assert sorted((query.name, query.hpa) for query in seen) == [("a", web), ("b", web)]
    source.announce(testing.external("c", namespace="default"), None)
    await source.ask(A, web)
    assert adapter.names == ["ab"]


@in_virtual_time
async def test_an_announced_query_that_the_adapter_does_not_understand_is_not_asked():
    adapter = Grouped()
    adapter.serves = frozenset({EXTERNAL, RESOURCE})
    source = opened(adapter, fresh=5.0, period=15.0)
    source.announce(testing.resource("cpu", "app=web", ignored_containers=["proxy"]))
    await source.ask(A)
    assert adapter.names == ["a"]


@in_virtual_time
async def test_a_query_that_came_long_ago_can_be_announced_again():
    """As after an HPA has come back from another replica."""
    adapter = Grouped()
    source = opened(adapter, fresh=5.0, period=15.0)
    await source.ask(A)
    await asyncio.sleep(3.5 * 15)
    source.announce(A)
    await source.ask(B)
    assert adapter.names == ["a", "ab"]


@in_virtual_time
async def test_an_announcement_needs_answers_that_are_used_again():
    adapter = Grouped()
    source = opened(adapter, fresh=0.0, period=15.0)
    source.announce(A)
    await source.ask(B)
    assert adapter.names == ["b"]
