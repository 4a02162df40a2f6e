"""HPAs that are edited in the middle of a turn: nothing is written any more by what they were."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support import virtual_time
from support.controller import Bench, hpa

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, Scale
from hpad.api.metadata import Key
from hpad.kube import errors

WEB = Key("default", "web")
CONFLICT = errors.ApiError(409, "Conflict", "the object has been modified")
OTHER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
ASKING = 3.0
"""Seconds that the metrics of these HPAs take."""
ANSWERED = virtual_time.START + timedelta(seconds=ASKING)
"""When the metrics of the first turn have been read."""

Edit = Callable[[Bench], None]


def annotated(**annotations: str) -> HorizontalPodAutoscaler:
    made = hpa("web")
    known = {f"hpad.io/{name}": value for name, value in annotations.items()}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=known))


def labelled(**labels: str) -> HorizontalPodAutoscaler:
    made = hpa("web")
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


class Life:
    """Two replicas, and metrics that want `wanted`; each write is noted with the spec that was current just then."""

    def __init__(self, wanted: int = 6, **spec: Any) -> None:
        self.bench = bench = Bench(hpa("web", **spec))
        bench.cluster.scales.update(web=2, other=2)
        self.wanted = wanted
        self.writes: list[tuple[float, str, int]] = []
        self.statuses: list[tuple[HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus]] = []
        self._write_scale, self._write_status = bench.cluster.write_scale, bench.cluster.write_status
        bench.metrics.values["web"] = self._ask
        bench.cluster.write_scale = self._scale  # type: ignore[method-assign]  # it takes notes
        bench.cluster.write_status = self._status  # type: ignore[method-assign]  # it takes notes

    async def _ask(self) -> int:
        wanted = self.wanted
        await asyncio.sleep(ASKING)
        return wanted * 10

    async def _scale(self, namespace: str, ref: Any, scale: Scale, allowed: Any) -> Scale:
        allowed()
        self.writes.append((virtual_time.now(), ref.name, scale.spec.replicas))
        return await self._write_scale(namespace, ref, scale, allowed)

    async def _status(
        self, told: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus, allowed: Any
    ) -> HorizontalPodAutoscaler:
        allowed()
        current = self.bench.source.get(WEB)
        assert current is not None
        assert told.spec == current.spec, "an API server would refuse it: the object has changed"
        self.statuses.append((current, status))
        return await self._write_status(told, status, allowed)

    async def live(self, seconds: float, edit: Edit | None = None, after: float = 1.0) -> "Life":
        """From a start at 0, edited in the middle of the first turn."""
        self.bench.controller.start()
        if edit is not None:
            await asyncio.sleep(after)
            edit(self.bench)
        await asyncio.sleep(seconds - virtual_time.now())
        await self.bench.controller.stop(0)
        return self


def puts(**spec: Any) -> Edit:
    return lambda bench: bench.source.put(hpa("web", **spec))


def quietly(**spec: Any) -> Edit:
    """Known to the source, and not told to its subscribers yet."""
    return lambda bench: bench.source._found.update({WEB: hpa("web", **spec)})


FIRST = pytest.approx(ASKING, abs=0.1)
"""When the edited turn writes."""
SECOND = pytest.approx(2 * ASKING, abs=0.1)
"""When the turn after it writes: it begins when the edited one ends, and reads the metrics again."""
OTHER_METRIC = {"metric": {"name": "other"}, "target": {"type": "AverageValue", "averageValue": "10"}}


@pytest.mark.parametrize(
    ("edit", "written"),
    [
        (puts(maxReplicas=3), [(FIRST, "web", 3)]),
        (puts(minReplicas=8), [(FIRST, "web", 8)]),
        (puts(scaleTargetRef=OTHER), [(SECOND, "other", 6)]),
        (puts(behavior={"scaleUp": {"selectPolicy": "Disabled"}}), []),
        (puts(goal=20), [(FIRST, "web", 3)]),
        (puts(metrics=[{"type": "External", "external": OTHER_METRIC}]), [(SECOND, "web", 6)]),
        (puts(uid="2", maxReplicas=3), [(pytest.approx(1 + ASKING, abs=0.1), "web", 3)]),  # the turn is cut short
        (lambda bench: bench.source.drop("web"), []),
        (lambda bench: bench.source.put(annotated(activation="100")), [(FIRST, "web", 6)]),
        (lambda bench: bench.source.put(labelled(shard="b")), [(SECOND, "web", 6)]),
        (quietly(maxReplicas=3), [(FIRST, "web", 3)]),
        (puts(), [(FIRST, "web", 6)]),  # the same again is no edit
    ],
    ids=[
        *("max", "min", "target", "behavior", "goal", "metric", "made anew", "deleted", "annotation", "label"),
        *("not told", "no edit"),
    ],
)
def test_an_hpa_edited_while_metrics_are_read_is_decided_again_at_once(
    edit: Edit, written: list[tuple[float, str, int]]
) -> None:
    async def main() -> Life:
        return await Life().live(9.5, edit)

    life = virtual_time.run(main())
    assert life.writes == written
    assert all(status.desired_replicas <= current.spec.max_replicas for current, status in life.statuses)


def test_an_edit_that_is_taken_back_in_time_changes_nothing() -> None:
    async def main() -> Life:
        def there_and_back(bench: Bench) -> None:
            bench.source.put(hpa("web", maxReplicas=3))
            bench.source.put(hpa("web"))

        return await Life().live(4, there_and_back)

    assert virtual_time.run(main()).writes == [(pytest.approx(ASKING, abs=0.1), "web", 6)]


def test_an_edit_while_the_rescale_is_saved_stops_it() -> None:
    async def main() -> Life:
        life = Life()

        async def flush_now(key: Key) -> bool:
            await asyncio.sleep(0)
            if life.bench.store.get(key).pending is not None:
                life.bench.source.put(hpa("web", maxReplicas=3))
            return True

        life.bench.store.flush_now = flush_now  # type: ignore[method-assign]  # an edit comes while it waits
        return await life.live(9.5)

    life = virtual_time.run(main())
    assert [(name, count) for _, name, count in life.writes] == [("web", 3)]
    assert len(life.bench.store.get(WEB).history.scale_ups) == 1


def test_an_edit_between_two_attempts_stops_the_second() -> None:
    async def main() -> Life:
        life = Life()
        write = life.bench.cluster.write_scale

        async def refused(namespace: str, ref: Any, scale: Scale, allowed: Any) -> Scale:
            allowed()
            life.bench.cluster.write_scale = write  # type: ignore[method-assign]  # from now on
            life.bench.source.put(hpa("web", maxReplicas=3))
            life.writes.append((virtual_time.now(), ref.name, scale.spec.replicas))
            raise CONFLICT

        life.bench.cluster.write_scale = refused  # type: ignore[method-assign]  # once
        return await life.live(9.5)

    life = virtual_time.run(main())
    assert [(name, count) for _, name, count in life.writes] == [("web", 6), ("web", 3)]
    assert [event.reason for event in life.bench.cluster.events] == ["SuccessfulRescale"]


def test_after_an_edit_during_the_write_of_the_scale_the_next_turn_tells_of_the_rescale() -> None:
    """It was on its way already. Its status came from the former spec, and is not written; nor is it forgotten."""

    async def main() -> Life:
        life = Life()
        life.bench.cluster.write_seconds = 1.0
        return await life.live(7.5, puts(maxReplicas=7, goal=11), after=ASKING + 0.5)

    life = virtual_time.run(main())
    assert [(name, count) for _, name, count in life.writes] == [("web", 6)]
    (_, status), *_ = life.statuses
    assert (status.current_replicas, status.desired_replicas) == (6, 6)
    assert status.last_scale_time == ANSWERED
    assert life.bench.store.get(WEB).pending is None
    assert len(life.bench.store.get(WEB).history.scale_ups) == 1
    assert "SuccessfulRescale" in [event.reason for event in life.bench.cluster.events]


def test_what_was_wanted_before_the_edit_holds_a_scale_down() -> None:
    """As in Kubernetes: ten were wanted, if by the former spec, and the window reaches back to that."""

    async def main() -> Life:
        life = Life(wanted=4, behavior={"scaleDown": {"stabilizationWindowSeconds": 60}})
        life.bench.cluster.scales["web"] = 4

        def edit(bench: Bench) -> None:
            life.wanted = 1
            bench.source.put(hpa("web", maxReplicas=9, behavior={"scaleDown": {"stabilizationWindowSeconds": 60}}))

        return await life.live(120, edit)

    (first, *_) = virtual_time.run(main()).writes
    assert first[0] >= 60
    assert first[1:] == ("web", 1)


@pytest.mark.parametrize("trouble", [None, CONFLICT])
def test_an_owed_status_is_written_even_if_the_next_rescale_fails(trouble: errors.ApiError | None) -> None:
    """Nor is it forgotten where its own write fails once more."""

    async def main() -> Life:
        life = Life()
        life.bench.cluster.status_refusals = [CONFLICT, *([trouble] if trouble else [])]

        def fails(bench: Bench) -> None:
            life.wanted = 9
            bench.cluster.refusals = [errors.ApiError(403, "Forbidden", "quota")] * 3

        return await life.live(70, fails, after=ASKING + 1)

    life = virtual_time.run(main())
    assert life.statuses[0][1].last_scale_time == ANSWERED
    assert life.bench.cluster.scales["web"] == 9


@pytest.mark.parametrize(
    ("edited", "written"),
    [
        (lambda number: hpa("web", maxReplicas=10 + number), 6),
        (lambda number: hpa("web", maxReplicas=5 - number % 2), 4),
        (lambda number: hpa("web", minReplicas=1 + number % 2), 6),
        (lambda number: hpa("web", goal=10 + number % 2), 6),
        (lambda number: hpa("web", scaleTargetRef={**OTHER, "name": ("web", "other")[number % 2]}), 6),
        (lambda number: labelled(stamp=str(number)), 6),
        (lambda number: annotated(activation=str(number)), 6),
        (lambda number: hpa("web", behavior={"scaleUp": {"selectPolicy": "Disabled"}}, maxReplicas=9 + number % 2), 2),
    ],
    ids=["max grows", "max", "min", "goal", "target", "label", "annotation", "disabled"],
)
def test_an_hpa_that_is_edited_more_often_than_a_turn_lasts_is_scaled(
    edited: Callable[[int], HorizontalPodAutoscaler], written: int
) -> None:
    async def main() -> Life:
        life = Life()
        life.bench.source.put(edited(0))
        life.bench.controller.start()
        for number in range(1, 30):
            await asyncio.sleep(2)
            life.bench.source.put(edited(number))
        await asyncio.sleep(2)
        await life.bench.controller.stop(0)
        return life

    life = virtual_time.run(main())
    assert life.bench.cluster.scales["web"] == written  # the last edit is number 29
    assert all(count <= edited(int(at / 2)).spec.max_replicas for at, _, count in life.writes)
