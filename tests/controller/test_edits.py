"""HPAs edited during a turn: nothing is written for the former spec."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support import virtual_time
from support.controller import Bench, annotated, hpa
from support.virtual_time import in_virtual_time

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, Scale
from hpad.api.metadata import Key
from hpad.api.sample import AdapterError
from hpad.kube import errors

WEB = Key("default", "web")
CONFLICT = errors.ApiError(409, "Conflict", "the object has been modified")
OTHER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
METRIC_SECONDS = 3.0
"""Seconds that the metrics of these HPAs take."""
METRICS_READ = virtual_time.START + timedelta(seconds=METRIC_SECONDS)
"""The moment at which the metrics of the first turn have been read."""

Edit = Callable[[Bench], None]


def labelled(**labels: str) -> HorizontalPodAutoscaler:
    made = hpa("web")
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


class Run:
    """An HPA with two replicas and a metric that proposes `proposed`. Records each write with the spec at that time."""

    def __init__(self, proposed: int = 6, **spec: Any) -> None:
        self.bench = bench = Bench(hpa("web", **spec))
        bench.cluster.scales.update(web=2, other=2)
        self.proposed = proposed
        self.writes: list[tuple[float, str, int]] = []
        self.statuses: list[tuple[HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus]] = []
        self.refused: list[HorizontalPodAutoscalerStatus] = []
        self._write_scale, self._write_status = bench.cluster.write_scale, bench.cluster.write_status
        bench.metrics.values["web"] = self._metric
        bench.cluster.write_scale = self._scale  # type: ignore[method-assign]  # records its calls
        bench.cluster.write_status = self._status  # type: ignore[method-assign]  # records its calls

    async def _metric(self) -> int:
        proposed = self.proposed
        await asyncio.sleep(METRIC_SECONDS)
        return proposed * 10

    async def _scale(self, namespace: str, ref: Any, scale: Scale, allowed: Any) -> Scale:
        allowed()
        self.writes.append((virtual_time.now(), ref.name, scale.spec.replicas))
        return await self._write_scale(namespace, ref, scale, allowed)

    async def _status(
        self, read: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus, allowed: Any
    ) -> HorizontalPodAutoscaler:
        allowed()
        current = self.bench.source.get(WEB)
        assert current is not None
        if read.spec != current.spec:  # an API server refuses the resourceVersion of an edited object
            self.refused.append(status)
            raise CONFLICT
        self.statuses.append((current, status))
        return await self._write_status(read, status, allowed)

    async def play(self, seconds: float, edit: Edit | None = None, after: float = 1.0) -> "Run":
        """Runs the controller from second 0 to `seconds`, and calls `edit` at second `after`."""
        self.bench.controller.start()
        if edit is not None:
            await asyncio.sleep(after)
            edit(self.bench)
        await asyncio.sleep(seconds - virtual_time.now())
        await self.bench.controller.stop(0)
        return self


def puts(**spec: Any) -> Edit:
    return lambda bench: bench.source.put(hpa("web", **spec))


def puts_without_notice(**spec: Any) -> Edit:
    """The source has the new spec, but its subscribers are not notified."""
    return lambda bench: bench.source.put(hpa("web", **spec), notify=False)


FIRST = pytest.approx(METRIC_SECONDS, abs=0.1)
"""When the edited turn writes."""
SECOND = pytest.approx(2 * METRIC_SECONDS, abs=0.1)
"""When the next turn writes: it starts at the end of the edited turn, and reads the metrics again."""
OTHER_METRIC = {"metric": {"name": "other"}, "target": {"type": "AverageValue", "averageValue": "10"}}


@pytest.mark.parametrize(
    ("edit", "written"),
    [
        (puts(maxReplicas=3), [(FIRST, "web", 3)]),
        (puts(minReplicas=8), [(FIRST, "web", 8)]),
        (puts(scaleTargetRef=OTHER), [(SECOND, "other", 6)]),
        (puts(behavior={"scaleUp": {"selectPolicy": "Disabled"}}), []),
        (puts(average=20), [(FIRST, "web", 3)]),
        (puts(metrics=[{"type": "External", "external": OTHER_METRIC}]), [(SECOND, "web", 6)]),
        (
            puts(uid="2", maxReplicas=3),
            [(pytest.approx(1 + METRIC_SECONDS, abs=0.1), "web", 3)],
        ),  # the turn is cancelled
        (lambda bench: bench.source.drop("web"), []),
        (lambda bench: bench.source.put(annotated(activation="100")), [(FIRST, "web", 6)]),
        (lambda bench: bench.source.put(labelled(shard="b")), [(SECOND, "web", 6)]),
        (puts_without_notice(maxReplicas=3), [(FIRST, "web", 3)]),
        (puts(), [(FIRST, "web", 6)]),  # the same spec again
    ],
    ids=[
        *("max", "min", "target", "behavior", "metric target", "metric", "recreated", "deleted", "annotation", "label"),
        *("not notified", "no edit"),
    ],
)
@in_virtual_time
async def test_an_hpa_edited_while_metrics_are_read_is_decided_again_at_once(
    edit: Edit, written: list[tuple[float, str, int]]
) -> None:
    run = await Run().play(9.5, edit)
    assert run.writes == written
    assert run.statuses or not written
    assert all(status.desired_replicas <= current.spec.max_replicas for current, status in run.statuses)


@in_virtual_time
async def test_a_fallback_that_is_added_while_metrics_are_read_applies_at_once() -> None:
    """The annotations of hpad are inputs of the decision."""

    async def fails() -> AdapterError:
        await asyncio.sleep(METRIC_SECONDS)
        return AdapterError("the broker is down")

    run = Run()
    run.bench.metrics.values["web"] = fails
    await run.play(9.5, lambda bench: bench.source.put(annotated(fallback="replicas:4 after 0s")))
    assert run.writes[:1] == [(FIRST, "web", 4)]


@in_virtual_time
async def test_an_edit_reverted_before_the_write_changes_nothing() -> None:
    def edit_and_revert(bench: Bench) -> None:
        bench.source.put(hpa("web", maxReplicas=3))
        bench.source.put(hpa("web"))

    run = await Run().play(4, edit_and_revert)
    assert run.writes == [(FIRST, "web", 6)]


@in_virtual_time
async def test_an_edit_while_the_pending_rescale_is_saved_stops_it() -> None:
    run = Run()

    async def flush_now(key: Key) -> bool:
        await asyncio.sleep(0)
        if run.bench.store.get(key).pending is not None:
            run.bench.source.put(hpa("web", maxReplicas=3))
        return True

    run.bench.store.flush_now = flush_now  # type: ignore[method-assign]  # an edit arrives while it waits
    await run.play(9.5)
    assert [(name, count) for _, name, count in run.writes] == [("web", 3)]
    assert len(run.bench.store.get(WEB).history.scale_ups) == 1


@in_virtual_time
async def test_an_edit_between_two_attempts_stops_the_second() -> None:
    run = Run()
    write = run.bench.cluster.write_scale

    async def refused(namespace: str, ref: Any, scale: Scale, allowed: Any) -> Scale:
        allowed()
        run.bench.cluster.write_scale = write  # type: ignore[method-assign]  # from now on
        run.bench.source.put(hpa("web", maxReplicas=3))
        run.writes.append((virtual_time.now(), ref.name, scale.spec.replicas))
        raise CONFLICT

    run.bench.cluster.write_scale = refused  # type: ignore[method-assign]  # once
    await run.play(9.5)
    assert [(name, count) for _, name, count in run.writes] == [("web", 6), ("web", 3)]
    assert [event.reason for event in run.bench.cluster.events] == ["SuccessfulRescale"]


@in_virtual_time
async def test_a_rescale_of_an_hpa_edited_during_the_write_is_reported_by_the_next_turn() -> None:
    """The status is not written, because it came from the former spec; the rescale stays pending."""
    run = Run()
    run.bench.cluster.write_seconds = 1.0
    await run.play(7.5, puts(maxReplicas=7, average=11), after=METRIC_SECONDS + 0.5)
    assert [(name, count) for _, name, count in run.writes] == [("web", 6)]
    assert run.refused == []
    (_, status), *_ = run.statuses
    assert (status.current_replicas, status.desired_replicas) == (6, 6)
    assert status.last_scale_time == METRICS_READ
    assert run.bench.store.get(WEB).pending is None
    assert len(run.bench.store.get(WEB).history.scale_ups) == 1
    assert "SuccessfulRescale" in [event.reason for event in run.bench.cluster.events]


@in_virtual_time
async def test_recommendations_from_before_an_edit_stabilize_a_scale_down() -> None:
    """As in Kubernetes, the window includes recommendations by the former spec."""
    run = Run(proposed=4, behavior={"scaleDown": {"stabilizationWindowSeconds": 60}})
    run.bench.cluster.scales["web"] = 4

    def edit(bench: Bench) -> None:
        run.proposed = 1
        bench.source.put(hpa("web", maxReplicas=9, behavior={"scaleDown": {"stabilizationWindowSeconds": 60}}))

    await run.play(120, edit)
    first, *_ = run.writes
    assert first[0] >= 60
    assert first[1:] == ("web", 1)


@pytest.mark.parametrize("trouble", [None, CONFLICT])
@in_virtual_time
async def test_a_pending_status_is_written_even_if_the_next_rescale_fails(trouble: errors.ApiError | None) -> None:
    """The status also stays pending if its own write fails again."""
    run = Run()
    run.bench.cluster.status_refusals = [CONFLICT, *([trouble] if trouble else [])]

    def fails(bench: Bench) -> None:
        run.proposed = 9
        bench.cluster.refusals = [errors.ApiError(403, "Forbidden", "quota")] * 3

    await run.play(90, fails, after=METRIC_SECONDS + 1)
    assert run.statuses[0][1].last_scale_time == METRICS_READ
    assert run.bench.cluster.scales["web"] == 9


@pytest.mark.parametrize(
    ("edited", "written"),
    [
        (lambda number: hpa("web", maxReplicas=10 + number), 6),
        (lambda number: hpa("web", maxReplicas=5 - number % 2), 4),
        (lambda number: hpa("web", minReplicas=1 + number % 2), 6),
        (lambda number: hpa("web", average=10 + number % 2), 6),
        (lambda number: hpa("web", scaleTargetRef={**OTHER, "name": ("web", "other")[number % 2]}), 6),
        (lambda number: labelled(stamp=str(number)), 6),
        (lambda number: annotated(activation=str(number)), 6),
        (lambda number: hpa("web", behavior={"scaleUp": {"selectPolicy": "Disabled"}}, maxReplicas=9 + number % 2), 2),
    ],
    ids=["max grows", "max", "min", "metric target", "target", "label", "annotation", "disabled"],
)
@in_virtual_time
async def test_an_hpa_edited_faster_than_a_turn_lasts_is_still_scaled(
    edited: Callable[[int], HorizontalPodAutoscaler], written: int
) -> None:
    run = Run()
    run.bench.source.put(edited(0))
    run.bench.controller.start()
    for number in range(1, 30):
        await asyncio.sleep(2)
        run.bench.source.put(edited(number))
    await asyncio.sleep(2)
    await run.bench.controller.stop(0)
    assert run.bench.cluster.scales["web"] == written  # the last edit is number 29
    assert run.writes or written == 2, "only a disabled scale-up writes nothing"
    assert all(count <= edited(int(at / 2)).spec.max_replicas for at, _, count in run.writes)
