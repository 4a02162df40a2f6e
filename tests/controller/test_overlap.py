"""HPAs that compete for a target or for pods: none of them scales, from the first turn on."""

import asyncio
import contextlib
import itertools
from typing import Any

import msgspec
import pytest
from support.controller import Bench, Switch, hpa
from support.virtual_time import in_virtual_time

from hpad.api.hpa import AUTOSCALER, HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from hpad.api.metadata import Key
from hpad.engine.view import Gates, Tunables
from hpad.kube import errors

WIDGET = {"apiVersion": "oracle.example/v1", "kind": "Widget", "name": "web"}
WEB = Key("default", "grows")
PERIOD = 15.0


def widget(hpa_name: str, average: int, **ref: str) -> HorizontalPodAutoscaler:
    return hpa(hpa_name, average=average, scaleTargetRef={**WIDGET, **ref})


def contenders(*found: HorizontalPodAutoscaler, **fields: Any) -> Bench:
    """HPAs on custom resources. Each target has four replicas and selects the pods of "web"."""
    bench = Bench(*found, **fields)
    names = {each.spec.scale_target_ref.name for each in found}
    bench.cluster.scales = dict.fromkeys(names, 4)
    bench.cluster.selectors = dict.fromkeys(names, "app=web")
    bench.cluster.unwatched = names
    bench.metrics.values = {each.metadata.name: 40 for each in found}
    return bench


def outcome(bench: Bench) -> tuple[list[int], set[str]]:
    return bench.cluster.writes, {event.reason for event in bench.cluster.events}


COMPETING = ([], {"AmbiguousSelector", "FailedComputeMetricsReplicas"})
"""The outcome of HPAs that compete: no write, and these events."""


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("ref", [{}, {"kind": "widget"}, {"apiVersion": "oracle.example/v2"}])
@in_virtual_time
async def test_hpas_that_name_the_same_target_compete_without_a_request(ref: dict[str, str], workers: int) -> None:
    """Another API version or a kind in lower case names the same object. One HPA would grow it, one would shrink it."""
    bench = contenders(widget("grows", 5), widget("shrinks", 20, **ref), workers=workers)
    await bench.advance(PERIOD - 1)
    assert outcome(bench) == COMPETING


@in_virtual_time
async def test_hpas_of_one_target_compete_without_a_common_pod() -> None:
    """The selector of the target matches no pod, so only the names of the targets show the competition."""
    bench = contenders(widget("grows", 5), widget("shrinks", 20))
    bench.cluster.selectors["web"] = "app=new"
    await bench.advance(PERIOD - 1)
    assert outcome(bench) == COMPETING


@in_virtual_time
async def test_hpas_of_one_target_are_known_before_anything_is_read() -> None:
    bench = contenders(widget("grows", 5), widget("shrinks", 20))
    overlap = bench.reconciler.overlap
    for each in bench.source.values():
        overlap.register(each)
    assert await overlap.others(WEB, Scale(spec=ScaleSpec(4)), ()) == ("shrinks",)
    assert bench.cluster.reads == []


@pytest.mark.parametrize("ref", [{"apiVersion": "other.example/v1"}, {"kind": "Gadget"}, {"kind": "WIDGET"}])
@in_virtual_time
async def test_another_group_or_kind_is_another_target(ref: dict[str, str]) -> None:
    """An HPA whose kind does not exist does not compete: WIDGET in upper case is not Widget."""
    bench = contenders(widget("grows", 5))
    twin = widget("twin", 5, **ref)
    read = bench.cluster.read_scale

    async def found(namespace: str, asked: Any, kind: str = "") -> Any:
        if asked.kind == WIDGET["kind"] and asked.api_version == WIDGET["apiVersion"]:
            return await read(namespace, asked)
        raise errors.ApiError(404, "NoMatch", "no matches for kind")

    bench.cluster.read_scale = found  # type: ignore[method-assign]  # a server with one kind
    bench.source.put(twin)
    await bench.advance(PERIOD - 1)
    assert bench.cluster.writes == [8]


def overlapping(**fields: Any) -> Bench:
    """Two HPAs whose targets, of different names, select the same pods."""
    return contenders(widget("grows", 5), widget("shrinks", 20, name="twin"), **fields)


@pytest.mark.parametrize("watched", ["", "web", "twin"])
@pytest.mark.parametrize("workers", [1, 8])
@in_virtual_time
async def test_hpas_whose_targets_select_common_pods_compete_from_the_first_turn_on(workers: int, watched: str) -> None:
    bench = overlapping(workers=workers)
    bench.cluster.unwatched.discard(watched)
    bench.cluster.read_seconds = itertools.cycle([0.3, 0.1, 0.7])
    await bench.advance(PERIOD - 1)
    assert outcome(bench) == COMPETING


@pytest.mark.parametrize("changed", ["web", "twin"])
@in_virtual_time
async def test_a_replica_that_takes_over_reads_the_current_selectors(changed: str) -> None:
    """Either HPA may have the first turn, and the selector of either target may have changed."""
    owner = Switch()
    bench = overlapping(owner=owner)
    bench.cluster.selectors[changed] = "app=other"
    bench.metrics.values = {"grows": 20, "shrinks": 80}  # both targets have their proposed count
    bench.controller.start()
    await asyncio.sleep(PERIOD)
    owner.on = False
    bench.takeover.changed()
    await asyncio.sleep(3600)
    bench.cluster.selectors[changed] = "app=web"
    bench.metrics.values = {"grows": 40, "shrinks": 40}
    owner.on = True
    bench.takeover.changed()
    await asyncio.sleep(PERIOD)
    await bench.controller.stop(0)
    assert outcome(bench) == COMPETING


@pytest.mark.parametrize("there", [True, False])
@in_virtual_time
async def test_a_new_hpa_competes_at_once_and_until_its_deletion(there: bool) -> None:
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


@in_virtual_time
async def test_an_hpa_edited_to_the_target_of_another_competes_at_once() -> None:
    bench = overlapping()
    bench.cluster.selectors["twin"] = "app=twin"
    bench.metrics.values = {"grows": 20, "shrinks": 80}
    bench.controller.start()
    await asyncio.sleep(PERIOD)
    bench.source.put(widget("shrinks", 20))
    bench.metrics.values = {"grows": 40, "shrinks": 40}
    await asyncio.sleep(2 * PERIOD)
    await bench.controller.stop(0)
    assert outcome(bench) == COMPETING


class Reads:
    """A hundred HPAs on their own targets. Reading a target takes one second and raises `error`, if given."""

    def __init__(self, error: errors.ApiError | None) -> None:
        self.asked: list[str] = []
        self.error = error
        others = [widget(f"other-{number}", 5, name=f"other-{number}") for number in range(100)]
        self.bench = contenders(widget("grows", 5), *others)
        self.overlap = self.bench.reconciler.overlap
        self.bench.cluster.read_scale = self._read  # type: ignore[method-assign]  # records its calls
        for each in self.bench.source.values():
            self.overlap.register(each)

    async def _read(self, namespace: str, ref: Any, kind: str = "") -> Scale:
        self.asked.append(ref.name)
        await asyncio.sleep(1)
        if self.error is not None:
            raise self.error
        if kind:
            raise errors.ApiError(0, errors.STALE, "the watch of autoscalers.hpad.io has received nothing")
        return Scale(spec=ScaleSpec(1), status=ScaleStatus(1, f"app={ref.name}"))


@pytest.mark.parametrize(
    ("status", "reason", "asked"),
    [(200, "", 100), (404, "NotFound", 100), (403, "Forbidden", 100), (503, "Busy", 8), (0, "Timeout", 8)],
)
@in_virtual_time
async def test_unreadable_targets_delay_nothing(status: int, reason: str, asked: int) -> None:
    """Each target is read once. If the API of their kind does not respond, only the first concurrent reads are sent."""
    reads = Reads(None if status == 200 else errors.ApiError(status, reason, "no"))
    assert not reads.overlap.is_complete(WEB)
    assert await asyncio.gather(*(reads.overlap.complete(WEB) for _ in range(5))) == [None] * 5
    assert reads.overlap.is_complete(WEB)
    assert len(reads.asked) == asked


@in_virtual_time
async def test_targets_read_before_a_timeout_are_not_read_again() -> None:
    reads = Reads(None)
    for _ in range(3):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5.5):
                await reads.overlap.complete(WEB)
    assert reads.overlap.is_complete(WEB)
    assert len(set(reads.asked)) == 100
    assert len(reads.asked) <= 100 + 2 * 8


@in_virtual_time
async def test_nothing_is_decided_while_a_stale_cache_hides_other_targets() -> None:
    reads = Reads(errors.ApiError(0, errors.STALE, "the watch of pods has received nothing"))
    reads.bench.cluster.unwatched.discard("web")  # its own scale could be read
    await reads.bench.advance(PERIOD - 1)
    assert reads.bench.metrics.asked == []
    assert {event.reason for event in reads.bench.cluster.events} == {"StaleCache"}
    reads.error = None
    await reads.overlap.complete(WEB)
    assert reads.overlap.is_complete(WEB)


@in_virtual_time
async def test_a_stale_cache_of_autoscalers_keeps_no_hpa_from_a_decision() -> None:
    reads = Reads(None)
    reads.overlap.register(msgspec.structs.replace(widget("auto", 5, name="auto"), kind=AUTOSCALER))
    assert await reads.overlap.complete(WEB) is None
    assert reads.overlap.is_complete(WEB)


@in_virtual_time
async def test_an_hpa_deleted_while_its_target_is_read_no_longer_competes() -> None:
    bench = overlapping()
    bench.cluster.read_seconds = itertools.repeat(2.0)
    bench.controller.start()
    await asyncio.sleep(1)
    bench.source.drop("shrinks")
    await asyncio.sleep(PERIOD)
    await bench.controller.stop(0)
    assert bench.cluster.writes == [8]


@in_virtual_time
async def test_a_target_at_zero_is_scaled_up_despite_competing_hpas() -> None:
    """As in Kubernetes, HPAs compete for pods only. Otherwise the target would stay at zero forever."""
    gates = Gates(HPAScaleToZero=True)
    alone = hpa("grows", average=5, minReplicas=0, scaleTargetRef=WIDGET)
    bench = contenders(alone, tunables=Tunables(gates=gates))
    bench.metrics.values["grows"] = 0
    bench.controller.start()
    await asyncio.sleep(2 * PERIOD)
    assert bench.cluster.writes == [0]
    bench.source.put(widget("shrinks", 20))
    bench.metrics.values = {"grows": 40, "shrinks": 40}
    await asyncio.sleep(2 * PERIOD)
    await bench.controller.stop(0)
    assert bench.cluster.writes == [0, 4], "up to what a policy allows; with pods, both HPAs compete"
