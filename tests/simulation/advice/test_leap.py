"""Turns that are left out: the curve with them and without is the same, over random loads and specs."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from support import environment
from support.simulations import BACKLOG, CPU, START, hpa

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.engine.annotations import PLAIN
from hpad.engine.view import Tunables
from hpad.simulation.advice.assessment import AdviceOptions
from hpad.simulation.advice.model.load_model import LoadModel
from hpad.simulation.advice.model.rerun import Rerun, rerun
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.backlog import Rates
from hpad.simulation.history import REPLICAS, LoadHistory

MINUTES = 165
SEEDS = (2, 4, 7, 14, 16, 22, 24, 28, 48, 129, 167, 349)
"""Lives in which the rules of `leap` decide: each of them changes a curve of one of these where it is broken."""
LATENCY: dict[str, Any] = {
    "type": "Object",
    "object": {
        "metric": {"name": "latency"},
        "describedObject": {"kind": "Ingress", "name": "web", "apiVersion": "networking.k8s.io/v1"},
        "target": {"type": "Value", "value": "200m"},
    },
}
MEMORY: dict[str, Any] = {
    "type": "Resource",
    "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "500Mi"}},
}
HITS: dict[str, Any] = {
    "type": "Pods",
    "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "20"}},
}
NAMES = {"cpu": (CPU, 50.0), "memory": (MEMORY, 500 * 2**20), "hits": (HITS, 20.0), "latency": (LATENCY, 0.2)}


def walk(chance: random.Random, low: float, high: float) -> Iterator[float | None]:
    """Yields a value per minute that wanders, jumps, rests, and is missing at times."""
    value, calm = chance.uniform(low, high), chance.choice((0.0, 0.02, 0.1, 0.3))
    jumps = chance.choice((0.02, 0.1, 0.3))
    for _ in range(MINUTES):
        kind = chance.random()
        if kind < jumps:
            value = chance.uniform(low, high)
        elif kind < 0.6:
            value = min(high, max(low, value * (1 + chance.gauss(0, calm))))
        yield None if chance.random() < 0.01 else value


def behavior(chance: random.Random) -> dict[str, Any]:
    """Returns spec.behavior with any of windows, policies, tolerances and selectPolicy, or nothing."""

    def rules() -> dict[str, Any]:
        found: dict[str, Any] = {}
        if chance.random() < 0.6:
            found["stabilizationWindowSeconds"] = chance.choice((0, 15, 60, 100, 300, 1200))
        if chance.random() < 0.6:
            found["policies"] = [
                {
                    "type": chance.choice(("Pods", "Percent")),
                    "value": chance.choice((1, 2, 10, 50, 100)),
                    "periodSeconds": chance.choice((15, 60, 100, 600)),
                }
                for _ in range(chance.choice((1, 2)))
            ]
        if chance.random() < 0.3:
            found["selectPolicy"] = chance.choice(("Min", "Max", "Disabled"))
        if chance.random() < 0.3:
            found["tolerance"] = chance.choice(("0", "50m", "300m"))
        return found

    if chance.random() < 0.25:
        return {}
    return {"behavior": {each: rules() for each in ("scaleUp", "scaleDown") if chance.random() < 0.9}}


def spec(chance: random.Random, metrics: list[dict[str, Any]]) -> HorizontalPodAutoscaler:
    low = chance.choice((0, 1, 1, 2, 5))
    return hpa(metrics[0], low, low + chance.choice((1, 3, 10, 10, 30)), metrics=metrics, **behavior(chance))


def compared(found: HorizontalPodAutoscaler, past: HpaPast, chance: random.Random) -> tuple[Rerun, Rerun]:
    """Returns the run with turns left out, and the one of all turns."""
    options = AdviceOptions(
        Tunables(), startup=chance.choice((0.0, 10.0, 30.0, 200.0)), lag=chance.choice((0.0, 15.0, 40.0))
    )
    model = LoadModel.of(past, options)
    assert model is not None
    return rerun(found, model), rerun(found, model, every_turn=True)


def times(chance: random.Random) -> list[float]:
    """Returns a time per minute, without some longer gaps."""
    begin, skipped = START.timestamp(), 0.0
    found = []
    for minute in range(MINUTES):
        skipped += chance.choice((60, 120, 600)) if chance.random() < 0.004 else 0
        found.append(begin + 60.0 * minute + skipped)
    return found


def past_of(found: HorizontalPodAutoscaler, load: LoadHistory, **more: Any) -> HpaPast:
    unknown = [None] * len(load.times)
    return HpaPast(hpa=found, load=load, desired=unknown, minimum=unknown, maximum=unknown, **more)


@pytest.mark.parametrize("seed", [*SEEDS, *range(1000, 1000 + 60 * (environment.EFFORT - 1))])
def test_leaving_turns_out_changes_no_curve(seed: int) -> None:
    chance = random.Random(seed)
    named = chance.sample(sorted(NAMES), chance.choice((1, 1, 2)))
    found = spec(chance, [NAMES[name][0] for name in named])
    count = chance.choice((1, 3, 10))
    most = chance.choice((0.4, 1.2)) * found.spec.max_replicas / count
    columns = {name: list(walk(chance, 0.0, most * NAMES[name][1])) for name in named}
    columns[REPLICAS] = [float(count)] * MINUTES
    short, full = compared(found, past_of(found, LoadHistory(times(chance), columns)), chance)
    assert short.curve == full.curve
    assert short.chosen == full.chosen
    assert short.held == pytest.approx(full.held)
    assert short.turns <= full.turns


ANNOTATIONS = (
    {"hpad.io/fallback": "hold"},
    {"hpad.io/fallback": "replicas:7 after 1m"},
    {"hpad.io/fallback": "ignore after 0s"},
    {"hpad.io/fallback": "at-least:12 after 2m", "hpad.io/sync-period": "30s"},
    {"hpad.io/tolerance-up": "0.4", "hpad.io/tolerance-down": "0"},
    {"hpad.io/mode": "shadow", "hpad.io/ignore-containers": "proxy", "hpad.io/keep-busy": "true"},
    {"hpad.io/initialization-period": "20m", "hpad.io/readiness-delay": "5m"},
    {"hpad.io/fallback": "last-good:1h"},
    {"hpad.io/schedule": "5 1 * * * for 1h: min=3, max=9"},
    {"hpad.io/schedule": "0 * * * * for 20m: min=8; 10 * * * * for 30m: max=9; */7 * * * * for 1m: min=2"},
    {"hpad.io/mode": "paused"},
)


@pytest.mark.parametrize("annotations", ANNOTATIONS, ids=str)
@pytest.mark.parametrize("seed", range(environment.EFFORT))
def test_annotations_of_hpad_have_their_effect(seed: int, annotations: dict[str, str]) -> None:
    chance = random.Random(f"{seed} {annotations}")
    named = chance.sample(sorted(NAMES), chance.choice((1, 2)))
    found = hpa(NAMES[named[0]][0], 1, 20, metrics=[NAMES[name][0] for name in named], **behavior(chance))
    found = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, annotations=annotations))
    assert PLAIN.of(found).errors == ()
    columns = {name: list(walk(chance, 0.0, 4 * NAMES[name][1])) for name in named}
    for begin in (30, 31, 32, 33, 34, 90, 91, 150, 151, 152, 153, 154, 155, 156, 157):
        columns[named[0]][begin] = None
    columns[REPLICAS] = [4.0] * MINUTES
    short, full = compared(found, past_of(found, LoadHistory(times(chance), columns)), chance)
    assert short.curve == full.curve
    assert short.chosen == full.chosen
    assert short.held == pytest.approx(full.held, rel=0.05), "a turn of a gap ends a time that is held"


@pytest.mark.parametrize(("gaps", "startup"), [((60, 90), 10.0), ((61, 91), 60.0), ((62, 92), 120.0)])
def test_two_short_gaps_are_not_a_long_one(gaps: tuple[int, int], startup: float) -> None:
    """More load at minute 60 starts replicas, which become ready within the first gap or before it."""
    annotations = {"hpad.io/fallback": "at-least:12 after 2m"}
    found = hpa(CPU, 1, 20)
    found = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, annotations=annotations))
    cpu: list[float | None] = [50.0 if minute < 60 or startup < 60 else 87.5 for minute in range(MINUTES)]
    for minute in gaps:
        cpu[minute] = None
    times = [START.timestamp() + 60.0 * minute for minute in range(MINUTES)]
    past = past_of(found, LoadHistory(times, {"cpu": cpu, REPLICAS: [4.0] * MINUTES}))
    model = LoadModel.of(past, AdviceOptions(Tunables(), startup=startup, lag=0.0))
    assert model is not None
    short, full = rerun(found, model), rerun(found, model, every_turn=True)
    assert short.curve == full.curve
    assert 12 not in {count for _, count in full.curve}


def test_what_was_asked_for_before_a_gap_still_counts_after_it() -> None:
    """The count doubles in each turn, until the metric fails; then the highest recommendation of the window goes on."""
    needs = [1.0] * 60 + [150.0, None] + [20.0] * (MINUTES - 62)
    cpu = [None if need is None else need * 50 / 4 for need in needs]
    times = [START.timestamp() + 60.0 * minute for minute in range(MINUTES)]
    found = hpa(CPU, 1, 200)
    past = past_of(found, LoadHistory(times, {"cpu": cpu, REPLICAS: [4.0] * MINUTES}))
    model = LoadModel.of(past, AdviceOptions(Tunables(), startup=0.0, lag=0.0))
    assert model is not None
    short, full = rerun(found, model), rerun(found, model, every_turn=True)
    assert short.curve == full.curve
    before, after = (max(count for at, count in full.curve if at < times[minute]) for minute in (62, 63))
    assert (before, after) == (32, 150), "4, 8, 16, 32: a limit of Kubernetes for HPAs without spec.behavior"


def test_an_annotation_without_an_effect_costs_no_turns() -> None:
    found = hpa(CPU, 1, 20)
    annotations = {"hpad.io/fallback": "replicas:7", "hpad.io/sync-period": "15s", "hpad.io/tolerance-up": "0.1"}
    metadata = msgspec.structs.replace(found.metadata, annotations=annotations)
    turns = []
    for each in (found, msgspec.structs.replace(found, metadata=metadata)):
        chance = random.Random(1)
        columns = {"cpu": [chance.choice((40.0, 50.0, 60.0)) for _ in range(MINUTES)], REPLICAS: [4.0] * MINUTES}
        model = LoadModel.of(
            past_of(each, LoadHistory([START.timestamp() + 60.0 * minute for minute in range(MINUTES)], columns)),
            AdviceOptions(Tunables()),
        )
        assert model is not None
        turns.append(rerun(each, model).turns)
    assert turns[0] == turns[1] < MINUTES


def test_the_period_is_that_of_the_hpa() -> None:
    found = hpa(CPU, 1, 20)
    metadata = msgspec.structs.replace(found.metadata, annotations={"hpad.io/sync-period": "1m"})
    columns = {"cpu": [50.0] * MINUTES, REPLICAS: [4.0] * MINUTES}
    load = LoadHistory([START.timestamp() + 60.0 * minute for minute in range(MINUTES)], columns)
    turns = []
    for each in (found, msgspec.structs.replace(found, metadata=metadata)):
        model = LoadModel.of(past_of(each, load), AdviceOptions(Tunables()))
        assert model is not None
        turns.append(rerun(each, model, every_turn=True).turns)
    assert turns == [pytest.approx(4 * MINUTES, abs=4), pytest.approx(MINUTES, abs=1)]


@pytest.mark.parametrize("seed", range(6 * environment.EFFORT))
def test_leaving_turns_out_changes_no_curve_of_a_queue(seed: int) -> None:
    chance = random.Random(seed)
    found = spec(chance, [BACKLOG])
    columns = {
        "published": list(walk(chance, 0.0, 30.0)),
        "acked": [1.0] * MINUTES,
        "queue_messages": [chance.choice((0.0, 100.0)) for _ in range(MINUTES)],
        REPLICAS: [1.0] * MINUTES,
    }
    past = past_of(
        found,
        LoadHistory(times(chance), columns),
        queues={"queue_messages": Rates("published", "acked", chance.choice((0.2, 1.0)))},
    )
    short, full = compared(found, past, chance)
    assert short.curve == full.curve
    assert short.chosen == full.chosen
    assert short.held == pytest.approx(full.held)
