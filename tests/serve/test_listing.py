"""Filters, states, order and pages of the list of HPAs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support import api_world
from support.api_world import QUEUE, World, hpa, scaled_up
from support.engine import Workload, series

from hpad.api.metadata import Key
from hpad.api.sample import AdapterError
from hpad.engine.conditions import (
    ABLE_TO_SCALE,
    COMPETING_WRITERS,
    FALLBACK_ACTIVE,
    SCALED_TO_ZERO,
    SCALING_ACTIVE,
    SCALING_LIMITED,
)

BROKEN = AdapterError("the broker is down", blame="source")
MANY = 2000
TIME = "2026-01-01T00:00:00Z"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with api_world.opened() as made:
        yield made


def condition(kind: str, value: str = "True", reason: str = "") -> dict[str, Any]:
    return {"type": kind, "status": value, "reason": reason}


def status(*conditions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"conditions": list(conditions), **fields}


async def states(world: World) -> list[str]:
    """Returns the states of the only HPA."""
    _, answer = await world.get("hpas")
    [item] = answer["items"]
    found: list[str] = item["states"]
    assert [state for state, count in answer["counts"].items() if count] == found
    return found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (status(), []),
        (status(condition(ABLE_TO_SCALE), condition(SCALING_ACTIVE), condition(SCALING_LIMITED, "False")), []),
        (status(condition(ABLE_TO_SCALE, "False")), ["failing"]),
        (status(condition(SCALING_ACTIVE, "False", "FailedGetExternalMetric")), ["failing"]),
        # A target that a user has set to zero is no failure.
        (status(condition(SCALING_ACTIVE, "False", "ScalingDisabled")), []),
        (status(condition(SCALING_ACTIVE, "False", "ScaleToZeroDisabled")), []),
        (status(condition(SCALING_LIMITED, "True", "ScaleDownLimit")), ["limited"]),
        # An HPA without work that keeps its minimum, or its last replica for a while.
        (status(condition(SCALING_LIMITED, "True", "TooFewReplicas")), []),
        (status(condition(SCALING_LIMITED, "True", "ZeroDelayed")), []),
        (status(desiredReplicas=9), []),
        (status(desiredReplicas=10), ["atMax"]),
        (status(condition(SCALING_LIMITED, "True", "TooManyReplicas"), desiredReplicas=10), ["atMax", "limited"]),
        (status(condition(FALLBACK_ACTIVE, "False")), []),
        (status(condition(FALLBACK_ACTIVE)), ["fallback"]),
        (status(condition(COMPETING_WRITERS)), ["competing"]),
    ],
)
async def test_states_follow_from_the_conditions(world: World, given: dict[str, Any], expected: list[str]) -> None:
    world.source.put(hpa("web", status=given))
    assert await states(world) == expected


async def test_conditions_that_tell_of_trouble_are_named(world: World) -> None:
    """By its type, a condition is good while True or while False. A count that the minimum limits is as wanted."""
    fine = [
        condition(ABLE_TO_SCALE),
        condition(SCALING_LIMITED, "True", "TooFewReplicas"),
        condition(COMPETING_WRITERS, "False"),
        condition(SCALED_TO_ZERO),
    ]
    world.source.put(hpa("web", status=status(*fine)))
    assert (await detail(world))["troubles"] == []
    bad = [
        condition(ABLE_TO_SCALE, "False"),
        condition(SCALING_ACTIVE, "False"),
        condition(SCALING_LIMITED, "True", "TooManyReplicas"),
        condition(FALLBACK_ACTIVE),
        condition(COMPETING_WRITERS),
        condition(SCALED_TO_ZERO, "False"),
    ]
    world.source.put(hpa("web", status=status(*bad)))
    assert (await detail(world))["troubles"] == [each["type"] for each in bad[:-1]]


async def detail(world: World) -> dict[str, Any]:
    answer: dict[str, Any] = (await world.get("hpas/default/web"))[1]
    return answer


async def test_an_hpa_with_a_single_count_is_not_at_its_maximum(world: World) -> None:
    world.source.put(hpa("web", minReplicas=10, status=status(desiredReplicas=10)))
    assert await states(world) == []


async def test_an_hpa_that_fails_in_part_is_failing(world: World) -> None:
    """Its conditions are those of success, since another metric decides."""
    work = Workload(QUEUE, api_world.other_queue(), replicas=2)
    work.reconcile(series(60), BROKEN)
    world.decided(work)
    assert work.condition(SCALING_ACTIVE).status == "True"
    assert "failing" in await states(world)


async def test_a_fallback_is_a_state_before_the_status_is_written(world: World) -> None:
    work = Workload(QUEUE, replicas=2, annotations={"hpad.io/fallback": "replicas:4 after 0s"})
    work.reconcile(BROKEN)
    world.decided(work)
    world.source.put(hpa("web"))
    assert await states(world) == ["failing", "fallback"]


async def test_in_a_dry_run_all_hpas_say_so() -> None:
    async with api_world.opened(dry_run=True) as world:
        world.source.put(hpa("web"))
        assert await states(world) == ["dryRun"]
        assert (await world.get("hpas/default/web"))[1]["dryRun"] is True


@pytest.fixture
async def shop(world: World) -> World:
    """Four HPAs in two namespaces."""
    world.source.put(
        hpa("web", "shop", target="frontend", maxReplicas=9, status=status(currentReplicas=3, desiredReplicas=9)),
        hpa(
            "cart",
            "shop",
            labels={"tier": "web"},
            maxReplicas=5,
            status=status(condition(ABLE_TO_SCALE, "False"), currentReplicas=10),
        ),
        hpa("mail", "office", minReplicas=2, status=status(condition(COMPETING_WRITERS), currentReplicas=2)),
        hpa("Shopper", "office", maxReplicas=100, status=status(currentReplicas=2, lastScaleTime=TIME)),
    )
    return world


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["Shopper", "mail", "cart", "web"]),
        ("?hpa=shop/web&hpa=office/mail&hpa=shop/web&hpa=shop/gone", ["mail", "web"]),
        ("?hpa=shop/web&state=failing", []),
        ("?namespace=shop", ["cart", "web"]),
        ("?namespace=sho", []),
        ("?search=shop", ["Shopper", "cart", "web"]),  # in a name and in a namespace
        ("?search=SHOP/c", ["cart"]),
        ("?search=front", ["web"]),  # in the name of the target
        ("?search=Deployment", []),
        ("?selector=tier%3Dweb", ["cart"]),
        ("?selector=tier!%3Dweb&namespace=shop", ["web"]),
        ("?selector=tier", ["cart"]),
        ("?state=failing", ["cart"]),
        ("?state=failing&state=atMax", ["cart", "web"]),
        ("?state=failing&namespace=office", []),
        ("?sort=-name", ["web", "cart", "mail", "Shopper"]),
        ("?sort=target", ["Shopper", "cart", "web", "mail"]),
        ("?sort=current", ["Shopper", "mail", "web", "cart"]),  # 2, 2, 3, 10
        ("?sort=-current", ["cart", "web", "mail", "Shopper"]),
        ("?sort=-desired", ["web", "cart", "mail", "Shopper"]),
        ("?sort=max", ["cart", "web", "mail", "Shopper"]),  # 5, 9, 10, 100
        ("?sort=-min", ["mail", "web", "cart", "Shopper"]),
        ("?sort=state", ["cart", "web", "mail", "Shopper"]),  # failing, atMax, competing, none
        ("?sort=-lastScaleTime&limit=1", ["Shopper"]),
        ("?limit=3", ["Shopper", "mail", "cart"]),
    ],
)
async def test_filters_and_orders(shop: World, query: str, names: list[str]) -> None:
    assert await shop.names(f"hpas{query}") == names


async def test_the_last_decision_is_an_order(world: World) -> None:
    for second, name in enumerate(("one", "three", "two")):
        work = Workload(QUEUE, replicas=2)
        work.reconcile(series(60), after=59 - second)
        world.decided(work, name)
    world.source.put(hpa("never"))
    assert await world.names("hpas?sort=lastDecision") == ["never", "two", "three", "one"]


def failed(world: World, name: str, namespace: str, cause: str) -> None:
    work = Workload(QUEUE, replicas=2)
    work.reconcile(AdapterError(cause))
    world.decided(work, name, namespace)


@pytest.fixture
async def trouble(world: World) -> World:
    """More HPAs than the page asks for at first; those that fail come last by name."""
    world.source.put(*(hpa(f"web-{number:03}", "a") for number in range(120)))
    failed(world, "one", "y", "rabbitmq: no queue 'one' in vhost '/'")
    failed(world, "two", "y", "prometheus: no answer in 5s")
    failed(world, "six", "z", "rabbitmq: no queue 'six' in vhost '/'")
    failed(world, "ten", "z", "prometheus: no answer in 10s")
    world.source.put(hpa("unread", "z", status=status(condition(ABLE_TO_SCALE, "False"))))
    return world


FAILING_FIRST = ["unread", "two", "ten", "one", "six", *(f"web-{number:03}" for number in range(120))]


async def test_failing_hpas_come_first_those_with_one_cause_together(trouble: World) -> None:
    assert await trouble.names("hpas?sort=failing&limit=100") == FAILING_FIRST[:100]
    assert await trouble.names("hpas?sort=-failing") == FAILING_FIRST[::-1]
    groups = [item["lastDecision"]["group"] for item in (await trouble.get("hpas?namespace=y"))[1]["items"]]
    assert groups == ["rabbitmq: no queue '…' in vhost '…'", "prometheus: no answer in …s"]


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_pages_in_the_order_of_failure_have_each_hpa_once(trouble: World, limit: int) -> None:
    seen, path = list[str](), f"hpas?sort=failing&limit={limit}"
    while path:
        _, answer = await trouble.get(path)
        seen += [item["name"] for item in answer["items"]]
        path = f"hpas?limit={limit}&continue={answer['continue']}" if "continue" in answer else ""
    assert seen == FAILING_FIRST


async def test_the_place_after_the_longest_cause_and_name_fits_into_a_request(world: World) -> None:
    for name in ("a", "b"):
        failed(world, name * 253, "n" * 63, "\U0001f40c" * 1000)
    _, answer = await world.get("hpas?sort=failing&limit=1")
    assert await world.names(f"hpas?limit=1&continue={answer['continue']}") == ["b" * 253]


async def test_counts_are_of_namespace_and_search_and_the_total_of_all_filters(shop: World) -> None:
    _, answer = await shop.get("hpas?namespace=shop&state=failing&limit=1")
    assert answer["total"] == 1
    assert (answer["counts"]["failing"], answer["counts"]["atMax"], answer["counts"]["competing"]) == (1, 1, 0)
    _, answer = await shop.get("hpas?limit=1")
    assert (answer["total"], len(answer["items"])) == (4, 1)


@pytest.mark.parametrize("sort", ["name", "-name", "current", "-current"])
async def test_pages_under_change_have_each_hpa_once(world: World, sort: str) -> None:
    """While pages are read, HPAs are created and deleted before, at and after the place that was reached."""
    stable = [f"web-{number:02}" for number in range(20)]
    world.source.put(*(hpa(name, status=status(currentReplicas=int(name[-2:]) // 4)) for name in stable))
    seen: list[str] = []
    path = f"hpas?limit=3&sort={sort}"
    while path:
        _, answer = await world.get(path)
        names = [item["name"] for item in answer["items"]]
        seen += names
        world.source.found.pop(Key("default", f"{seen[-1]}-new"), None)
        for near in (names[0], names[-1], stable[0], stable[-1]):
            world.source.put(hpa(f"{near}-new", status=status(currentReplicas=int(near[4:6]) // 4)))
        path = f"hpas?limit=3&continue={answer['continue']}" if "continue" in answer else ""
    assert [name for name in seen if name in stable] == (stable[::-1] if sort.startswith("-") else stable)
    assert len(seen) == len(set(seen))


async def test_a_page_goes_on_after_an_hpa_that_was_deleted(shop: World) -> None:
    _, answer = await shop.get("hpas?limit=2")
    del shop.source.found[Key("office", "mail")]
    assert await shop.names(f"hpas?continue={answer['continue']}") == ["cart", "web"]


async def test_the_last_page_has_no_continue(shop: World) -> None:
    _, answer = await shop.get("hpas?limit=4")
    assert (len(answer["items"]), "continue" in answer) == (4, False)


async def test_any_continue_of_the_right_form_is_a_place_in_the_list(shop: World) -> None:
    """A client may have kept it from another version of hpad; it is never an error and never a bug."""
    for token in ("name.", "-state._w", "current.____", "lastDecision.AAAA", "target.c2hvcA"):
        assert (await shop.get(f"hpas?continue={token}"))[0] == 200, token


async def turns(counted: list[None]) -> None:
    """Adds an entry for each turn of the event loop, one per millisecond at most."""
    while True:
        await asyncio.sleep(0.001)
        counted.append(None)


async def test_thousands_of_hpas_are_listed_while_the_loop_goes_on(world: World) -> None:
    work = scaled_up()
    for number in range(MANY):
        world.decided(work, f"web-{number}")
    counted: list[None] = []
    counting = asyncio.create_task(turns(counted))
    status, answer = await world.get(f"hpas?limit={MANY}&sort=-state")
    counting.cancel()
    assert status == 200
    assert len({item["name"] for item in answer["items"]}) == MANY == answer["total"] == answer["counts"]["limited"]
    assert len(counted) > 20
    assert len(await world.names("hpas")) == 500
