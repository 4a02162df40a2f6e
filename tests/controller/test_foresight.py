"""Sources are told the queries of a namespace before its first turn, so that one call answers all of them."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from support.controller import Bench, Named, annotated, hpa
from support.virtual_time import in_virtual_time

from hpad.api.sample import HPAIdentity

PERIOD = 15.0


def listening(bench: Bench) -> list[tuple[str, str, int]]:
    """Returns the list of what the sources are told: namespace, name, and the number of turns before that."""
    told: list[tuple[str, str, int]] = []

    def expect(queries: Sequence[Any], identity: HPAIdentity) -> None:
        assert [query.name for query in queries] == [identity.name]
        told.append((queries[0].namespace, identity.name, len(bench.metrics.asked)))

    bench.metrics.expect = expect  # type: ignore[method-assign]  # as a source would be told
    return told


@in_virtual_time
async def test_the_first_turn_of_a_namespace_tells_all_its_queries_once() -> None:
    names = [f"app-{number}" for number in range(20)]
    bench = Bench(*(hpa(name, namespace=space) for space in ("east", "west") for name in names), period=PERIOD)
    told = listening(bench)
    bench.controller.start()
    await asyncio.sleep(3 * PERIOD)
    await bench.controller.stop(5)
    assert sorted((space, name) for space, name, _ in told) == sorted(itertools.product(("east", "west"), names))
    moments = {space: {before for where, _, before in told if where == space} for space in ("east", "west")}
    assert sorted(moments.values(), key=min) == [{0}, {20}]  # the other namespace is due later


@in_virtual_time
async def test_queries_of_gained_hpas_are_told() -> None:
    owner = Named("web")
    bench = Bench(hpa("web"), hpa("api"), owner=owner, period=PERIOD)
    told = listening(bench)
    bench.controller.start()
    await asyncio.sleep(2 * PERIOD)
    assert [name for _, name, _ in told] == ["web"]
    owner.names.add("api")
    bench.handoff.changed()
    await asyncio.sleep(2 * PERIOD)
    await bench.controller.stop(5)
    assert [name for _, name, _ in told] == ["web", "api"]


@in_virtual_time
async def test_nothing_is_told_of_hpas_that_will_not_ask_or_have_a_period_of_their_own() -> None:
    own = annotated(hpa("own"), **{"sync-period": "60s"})
    bench = Bench(own, *map(hpa, ("web", "stopped", "unwatched", "deleted")), period=PERIOD, workers=1)
    told = listening(bench)
    bench.cluster.scales["stopped"] = 0
    bench.cluster.unwatched.add("unwatched")
    bench.controller.start()
    bench.source.drop("deleted")
    await asyncio.sleep(2 * PERIOD)
    await bench.controller.stop(5)
    assert [name for _, name, _ in told] == ["web"]


@in_virtual_time
async def test_a_large_namespace_is_told_in_parts() -> None:
    bench = Bench(*(hpa(f"app-{number}") for number in range(450)), period=PERIOD)
    told = listening(bench)
    bench.controller.start()
    await asyncio.sleep(2 * PERIOD)
    await bench.controller.stop(5)
    assert [sum(before == turn for _, _, before in told) for turn in (0, 1, 2)] == [200, 200, 50]
