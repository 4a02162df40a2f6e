"""HPAs that compete for a target or for pods: none of them acts, from the first turn on."""

import asyncio
import contextlib
import itertools
from typing import Any

import pytest
from election.test_owner import Switch
from support import virtual_time
from support.controller import Bench, hpa

from hpad.api.hpa import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from hpad.api.metadata import Key
from hpad.engine.view import Gates, Tunables
from hpad.kube import errors

WIDGET = {"apiVersion": "oracle.example/v1", "kind": "Widget", "name": "web"}
WEB = Key("default", "grows")
PERIOD = 15.0


def widget(called: str, goal: int, **ref: str) -> HorizontalPodAutoscaler:
    return hpa(called, goal=goal, scaleTargetRef={**WIDGET, **ref})


def contenders(*found: HorizontalPodAutoscaler, **fields: Any) -> Bench:
    """HPAs on custom resources; "web" and whatever else they scale have four pods labelled app=web."""
    bench = Bench(*found, **fields)
    names = {each.spec.scale_target_ref.name for each in found}
    bench.cluster.scales = dict.fromkeys(names, 4)
    bench.cluster.selectors = dict.fromkeys(names, "app=web")
    bench.cluster.unwatched = names
    bench.metrics.values = {each.metadata.name: 40 for each in found}
    return bench


def outcome(bench: Bench) -> tuple[list[int], set[str]]:
    return bench.cluster.writes, {event.reason for event in bench.cluster.events}


HELD = ([], {"AmbiguousSelector", "FailedComputeMetricsReplicas"})


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("ref", [{}, {"kind": "widget"}, {"apiVersion": "oracle.example/v2"}])
def test_hpas_that_name_the_same_target_compete_without_any_request(ref: dict[str, str], workers: int) -> None:
    """In another version of its API, or in lower case, it is the same object. One wants to grow, one to shrink."""

    async def main() -> Bench:
        bench = contenders(widget("grows", 5), widget("shrinks", 20, **ref), workers=workers)
        await bench.advance(PERIOD - 1)
        return bench

    assert outcome(virtual_time.run(main())) == HELD


@pytest.mark.parametrize("ref", [{"apiVersion": "other.example/v1"}, {"kind": "Gadget"}, {"kind": "WIDGET"}])
def test_another_group_or_kind_is_another_target(ref: dict[str, str]) -> None:
    """Nor does an HPA compete whose kind there is not: WIDGET is not how Widget is written."""

    async def main() -> Bench:
        bench = contenders(widget("grows", 5))
        twin = widget("twin", 5, **ref)
        read = bench.cluster.read_scale

        async def found(namespace: str, asked: Any) -> Any:
            if asked.kind == WIDGET["kind"] and asked.api_version == WIDGET["apiVersion"]:
                return await read(namespace, asked)
            raise errors.ApiError(404, "NoMatch", "no matches for kind")

        bench.cluster.read_scale = found  # type: ignore[method-assign]  # a server with one kind
        bench.source.put(twin)
        await bench.advance(PERIOD - 1)
        return bench

    assert virtual_time.run(main()).cluster.writes == [8]


def overlapping(**fields: Any) -> Bench:
    """Two HPAs whose targets, of different names, select the same pods."""
    return contenders(widget("grows", 5), widget("shrinks", 20, name="twin"), **fields)


@pytest.mark.parametrize("watched", ["", "web", "twin"])
@pytest.mark.parametrize("workers", [1, 8])
def test_hpas_whose_targets_select_common_pods_compete_from_the_first_turn_on(workers: int, watched: str) -> None:
    async def main() -> Bench:
        bench = overlapping(workers=workers)
        bench.cluster.unwatched.discard(watched)
        bench.cluster.read_seconds = itertools.cycle([0.3, 0.1, 0.7])
        await bench.advance(PERIOD - 1)
        return bench

    assert outcome(virtual_time.run(main())) == HELD


def test_who_takes_over_reads_the_selectors_as_they_are_then() -> None:
    async def main() -> Bench:
        owner = Switch()
        bench = overlapping(owner=owner)
        bench.cluster.selectors["twin"] = "app=other"
        bench.metrics.values = {"grows": 20, "shrinks": 80}  # both are where they are to be
        bench.controller.start()
        await asyncio.sleep(PERIOD)
        owner.on = False
        bench.handoff.changed()
        await asyncio.sleep(3600)
        bench.cluster.selectors["twin"] = "app=web"
        bench.metrics.values = {"grows": 40, "shrinks": 40}
        owner.on = True
        bench.handoff.changed()
        await asyncio.sleep(PERIOD)
        await bench.controller.stop(0)
        return bench

    assert outcome(virtual_time.run(main())) == HELD


def test_an_hpa_of_another_member_competes_too() -> None:
    """Its target is not watched, and no turn of ours ever reads it."""

    class Half(Switch):
        def owns(self, key: Any) -> bool:
            return key.name == "grows"

    async def main() -> Bench:
        bench = overlapping(owner=Half())
        await bench.advance(PERIOD - 1)
        return bench

    assert outcome(virtual_time.run(main())) == HELD


@pytest.mark.parametrize("there", [True, False])
def test_an_hpa_that_comes_later_competes_at_once_and_one_that_goes_lets_the_other_act(there: bool) -> None:
    async def main() -> None:
        bench = overlapping()
        bench.metrics.values = {"grows": 20, "shrinks": 20}
        bench.source.drop("shrinks")
        bench.controller.start()
        await asyncio.sleep(PERIOD)
        if there:
            bench.source.put(widget("shrinks", 20, name="twin"))
        bench.metrics.values["grows"] = 40
        await asyncio.sleep(PERIOD)
        assert bench.cluster.writes == ([] if there else [8])
        if there:
            bench.source.drop("shrinks")
            await asyncio.sleep(PERIOD)
            assert bench.cluster.writes == [8]
        await bench.controller.stop(0)

    virtual_time.run(main())


def test_an_hpa_that_is_pointed_at_the_target_of_another_competes_at_once() -> None:
    async def main() -> Bench:
        bench = overlapping()
        bench.cluster.selectors["twin"] = "app=twin"
        bench.metrics.values = {"grows": 20, "shrinks": 80}
        bench.controller.start()
        await asyncio.sleep(PERIOD)
        bench.source.put(widget("shrinks", 20))
        bench.metrics.values = {"grows": 40, "shrinks": 40}
        await asyncio.sleep(2 * PERIOD)
        await bench.controller.stop(0)
        return bench

    assert outcome(virtual_time.run(main())) == HELD


class Reads:
    """A hundred HPAs on targets of their own, each of which takes a second to be read; and what becomes of that."""

    def __init__(self, error: errors.ApiError | None) -> None:
        self.asked: list[str] = []
        self.error = error
        others = [widget(f"other-{number}", 5, name=f"other-{number}") for number in range(100)]
        self.bench = contenders(widget("grows", 5), *others)
        self.overlap = self.bench.reconciler.overlap
        self.bench.cluster.read_scale = self._read  # type: ignore[method-assign]  # it takes notes
        for each in self.bench.source.values():
            self.overlap.register(each)

    async def _read(self, namespace: str, ref: Any) -> Scale:
        self.asked.append(ref.name)
        await asyncio.sleep(1)
        if self.error is not None:
            raise self.error
        return Scale(spec=ScaleSpec(1), status=ScaleStatus(1, f"app={ref.name}"))


@pytest.mark.parametrize(
    ("status", "reason", "asked"),
    [(200, "", 100), (404, "NotFound", 100), (403, "Forbidden", 100), (503, "Busy", 8), (0, "Timeout", 8)],
)
def test_targets_that_cannot_be_read_hold_nothing_up(status: int, reason: str, asked: int) -> None:
    """Each is asked for once; of a kind whose API does not answer, as many as are asked for at a time."""

    async def main() -> Reads:
        reads = Reads(None if status == 200 else errors.ApiError(status, reason, "no"))
        assert not reads.overlap.is_complete(WEB)
        assert await asyncio.gather(*(reads.overlap.complete(WEB) for _ in range(5))) == [None] * 5
        assert reads.overlap.is_complete(WEB)
        return reads

    assert len(virtual_time.run(main()).asked) == asked


def test_what_was_read_stays_where_a_turn_is_cut_short() -> None:
    async def main() -> Reads:
        reads = Reads(None)
        for _ in range(3):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5.5):
                    await reads.overlap.complete(WEB)
        assert reads.overlap.is_complete(WEB)
        return reads

    reads = virtual_time.run(main())
    assert len(set(reads.asked)) == 100
    assert len(reads.asked) <= 100 + 2 * 8


def test_nothing_is_decided_while_what_is_known_is_too_old_to_read_others() -> None:
    async def main() -> None:
        reads = Reads(errors.ApiError(0, errors.STALE, "nothing has been heard of pods"))
        reads.bench.cluster.unwatched.discard("web")  # its own scale could be read
        await reads.bench.advance(PERIOD - 1)
        assert reads.bench.metrics.asked == []
        assert {event.reason for event in reads.bench.cluster.events} == {"StaleCache"}
        reads.error = None
        await reads.overlap.complete(WEB)
        assert reads.overlap.is_complete(WEB)

    virtual_time.run(main())


def test_an_hpa_that_goes_while_its_target_is_read_competes_no_more() -> None:
    async def main() -> None:
        bench = overlapping()
        bench.cluster.read_seconds = itertools.repeat(2.0)
        bench.controller.start()
        await asyncio.sleep(1)
        bench.source.drop("shrinks")
        await asyncio.sleep(PERIOD)
        await bench.controller.stop(0)
        assert bench.cluster.writes == [8]

    virtual_time.run(main())


def test_a_target_at_zero_is_woken_whatever_else_names_it() -> None:
    """As in Kubernetes, where it takes a pod to compete for: else it would stay at zero for good."""

    async def main() -> Bench:
        gates = Gates(HPAScaleToZero=True)
        alone = hpa("grows", goal=5, minReplicas=0, scaleTargetRef=WIDGET)
        bench = contenders(alone, tunables=Tunables(gates=gates))
        bench.metrics.values["grows"] = 0
        bench.controller.start()
        await asyncio.sleep(2 * PERIOD)
        assert bench.cluster.writes == [0]
        bench.source.put(widget("shrinks", 20))
        bench.metrics.values = {"grows": 40, "shrinks": 40}
        await asyncio.sleep(2 * PERIOD)
        await bench.controller.stop(0)
        return bench

    assert virtual_time.run(main()).cluster.writes == [0, 4], "woken by what a policy lets grow; with pods, both hold"
