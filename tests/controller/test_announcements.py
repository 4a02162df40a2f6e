"""Sources are told the queries of a namespace before its first turn, so that one call answers all of them."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from support.controller import Bench, Switch, annotated, hpa
from support.virtual_time import in_virtual_time

from hpad.api.sample import HPAIdentity

PERIOD = 15.0


def listening(bench: Bench) -> list[tuple[str, str, int]]:
    """Returns the list of what the sources are told: namespace, name, and the number of turns before that."""
    told: list[tuple[str, str, int]] = []

    def announce(queries: Sequence[Any], identity: HPAIdentity) -> None:
        assert [query.name for query in queries] == [identity.name]
        told.append((queries[0].namespace, identity.name, len(bench.metrics.asked)))

    bench.metrics.announce = announce  # type: ignore[method-assign]  # as a source would be told
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
async def test_what_is_told_is_what_will_be_asked() -> None:
    """Also where the HPA ignores containers of its pods; nothing is asked for one with an invalid spec."""
    target = {"type": "Utilization", "averageUtilization": 50}
    cpu = hpa("cpu", metrics=[{"type": "Resource", "resource": {"name": "cpu", "target": target}}])
    wrong = hpa("wrong")
    wrong = msgspec.structs.replace(wrong, spec=msgspec.structs.replace(wrong.spec, invalid="spec.maxReplicas: no"))
    bench = Bench(annotated(cpu, **{"ignore-containers": "proxy"}), hpa("web"), wrong, period=PERIOD)
    told: dict[str, Any] = {}
    asked: dict[str, Any] = {}
    ask = bench.metrics.ask

    def remember(queries: Sequence[Any], **how: Any) -> Any:
        asked[how["identity"].name] = tuple(queries)
        return ask(queries, **how)

    bench.metrics.announce = lambda queries, identity: told.update({identity.name: tuple(queries)})  # type: ignore[method-assign]
    bench.metrics.ask = remember  # type: ignore[method-assign]
    bench.controller.start()
    await asyncio.sleep(2 * PERIOD)
    await bench.controller.stop(5)
    assert asked.keys() == {"cpu", "web"}
    assert asked["cpu"][0].ignored_containers == ("proxy",)
    assert told == asked


@in_virtual_time
async def test_a_new_leader_tells_queries_and_a_standby_does_not() -> None:
    owner = Switch(False)
    bench = Bench(hpa("web"), owner=owner, period=PERIOD)
    told = listening(bench)
    bench.controller.start()
    await asyncio.sleep(2 * PERIOD)
    assert told == []
    owner.on = True
    bench.takeover.changed()
    await asyncio.sleep(2 * PERIOD)
    await bench.controller.stop(5)
    assert [name for _, name, _ in told] == ["web"]


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
    first, second, rest = Counter(before for _, _, before in told).values()
    assert (first, second) == (200, 200)
    assert 48 <= rest <= 50  # up to two HPAs ask before they are told
