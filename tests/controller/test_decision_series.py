"""The series of a decision: from the answers of the sources to the samples of a scrape."""

import asyncio
from typing import Any

import msgspec
import pytest
from prometheus_client import parser
from support.controller import Bench, Switch, hpa
from support.engine import Workload, container, external, object_metric, one, pods_metric, resource, series, used
from support.virtual_time import in_virtual_time

from hpad.api.sample import AdapterError
from hpad.engine.conditions import SCALED_TO_ZERO, TRUE, Condition
from hpad.engine.view import Gates, ScaleError
from hpad.telemetry import Telemetry

DOWN = AdapterError("connection refused")
MEBI = 2**20
Found = dict[tuple[str, ...], float]


async def samples(telemetry: Telemetry) -> Found:
    """The samples of one HPA by their name without `hpad_hpa_` and by their labels other than those of the HPA."""
    text = (await telemetry.exposition()).decode()
    found: Found = {}
    for family in parser.text_string_to_metric_families(text):
        for name, labels, value, *_ in family.samples:
            if name.startswith("hpad_hpa_"):
                assert (labels.pop("namespace"), labels.pop("hpa_name")) == ("default", "web")
                found[name.removeprefix("hpad_hpa_"), *labels.values()] = value
    return found


async def exported(web: Workload, *answers: Any, **fields: Any) -> Found:
    """The samples after one reconcile."""
    web.reconcile(*answers, **fields)
    made, telemetry = web.done, Telemetry()
    assert made is not None
    telemetry.controller.decisions.decided(made)
    return await samples(telemetry)


def of_metrics(found: Found) -> dict[str, tuple[float, ...]]:
    """Target, value and proposal of each metric, as far as there are such samples."""
    names = [label[0] for name, *label in found if name.startswith("metric_")]
    kinds = ("metric_target", "metric_value", "metric_proposal")
    return {label: tuple(found[kind, label] for kind in kinds if (kind, label) in found) for label in names}


@pytest.mark.parametrize(
    ("metric", "answer", "figures"),
    [
        (resource("cpu", averageUtilization=50), used([122, 122]), {"cpu": (0.5, 0.61, 3)}),
        (resource("cpu", averageValue="100m"), used([122, 124]), {"cpu": (0.1, 0.123, 3)}),
        (resource("memory", averageValue="64Mi"), used([96 * MEBI * 1000] * 2), {"memory": (64 * MEBI, 96 * MEBI, 3)}),
        (container("cpu", "app", averageUtilization=50), used([122, 122]), {"cpu": (0.5, 0.61, 3)}),
        (pods_metric("requests", "1500m"), used([3000, 3000]), {"requests": (1.5, 3, 4)}),
        (object_metric("hits", value="4"), one(6), {"hits": (4, 6, 3)}),
        (external("queue", averageValue="15"), series(80), {"queue": (15, 40, 6)}),
        (external("queue", {"queue": "a"}, value="15"), series(20, 10), {"queue": (15, 30, 4)}),
    ],
)
async def test_figures_are_in_base_units(metric: dict[str, Any], answer: Any, figures: Any) -> None:
    """Cores, bytes, counts; a ratio to the request. Each value is compared with its target."""
    assert of_metrics(await exported(Workload(metric, replicas=2), answer)) == figures


async def test_metrics_of_one_name_have_different_addresses() -> None:
    metrics = [external("queue", {"queue": name}, averageValue="10") for name in ("a", "b")]
    found = await exported(Workload(*metrics, replicas=5), series(40), series(60))
    assert of_metrics(found) == {"queue{queue=a}": (10, 8, 4), "queue{queue=b}": (10, 12, 6)}


async def test_the_counts_of_the_stages() -> None:
    """27 replicas are asked for; the policies allow ten."""
    web = Workload(resource("cpu", averageUtilization=50), replicas=5, low=2, high=30)
    found = await exported(web, used([540] * 5))
    counts = {name[0]: value for name, value in found.items() if not name[0].startswith("metric_")}
    limits = {"min_replicas": 2, "max_replicas": 30, "held_by": 1}
    assert counts == {**limits, "current_replicas": 5, "recommendation": 27, "decision": 10}
    assert found["held_by", "scale_up_limit"] == 1


async def test_a_failed_metric_has_its_target_alone() -> None:
    """Neither zero nor an old figure. The other metric decides, and may not scale down."""
    both = resource("cpu", averageUtilization=50), external("queue", averageValue="15")
    grows = await exported(Workload(*both, replicas=2), used([122, 122]), DOWN)
    assert of_metrics(grows) == {"cpu": (0.5, 0.61, 3), "queue": (15,)}
    assert (grows["recommendation",], grows["decision",]) == (3, 3)
    stays = await exported(Workload(*both, replicas=2), used([10, 10]), DOWN)
    assert of_metrics(stays) == {"cpu": (0.5, 0.05, 1), "queue": (15,)}
    assert not {("recommendation",), ("decision",)} & stays.keys()
    assert stays["held_by", "invalid_metrics"] == 1


@pytest.mark.parametrize(
    ("fallback", "proposal"), [("replicas:4 after 0s", 4), ("ignore after 0s", None), ("hold", None)]
)
async def test_a_fallback_gives_a_proposal_and_no_value(fallback: str, proposal: int | None) -> None:
    queue = external("queue", averageValue="15"), external("rate", averageValue="10")
    web = Workload(*queue, replicas=2, annotations={"hpad.io/fallback": f"queue={fallback}"})
    found = await exported(web, DOWN, series(20))
    assert found["metric_target", "queue"] == 15
    assert ("metric_value", "queue") not in found
    assert found.get(("metric_proposal", "queue")) == proposal


async def test_an_invalid_metric_has_no_sample_at_all() -> None:
    found = await exported(
        Workload({"type": "Weather"}, resource("cpu", averageUtilization=50), replicas=2), DOWN, used([122] * 2)
    )
    assert of_metrics(found) == {"cpu": (0.5, 0.61, 3)}


async def test_a_target_without_replicas_has_the_whole_value() -> None:
    """No replica shares it out yet; without a sample the metric would seem to fail."""
    web = Workload(external("queue", averageValue="15"), replicas=0, low=0, gates=Gates(HPAScaleToZero=True))
    status = msgspec.structs.replace(web.hpa.status, conditions=(Condition(SCALED_TO_ZERO, TRUE),))
    web.hpa = msgspec.structs.replace(web.hpa, status=status)
    assert of_metrics(await exported(web, series(20))) == {"queue": (15, 20, 2)}


@pytest.mark.parametrize(
    ("replicas", "fields", "counts"),
    [
        (30, {}, {"min_replicas": 1, "max_replicas": 10, "current_replicas": 30, "decision": 10}),
        (0, {}, {"min_replicas": 1, "max_replicas": 10, "current_replicas": 0}),
        (3, {"scale": None, "scale_error": ScaleError("gone")}, {"min_replicas": 1, "max_replicas": 10}),
    ],
)
async def test_metrics_that_were_not_read_have_their_targets_alone(
    replicas: int, fields: dict[str, Any], counts: dict[str, float]
) -> None:
    found = await exported(Workload(external("queue", averageValue="15"), replicas=replicas), **fields)
    assert of_metrics(found) == {"queue": (15,)}
    named = {name[0]: value for name, value in found.items() if not name[0].startswith("metric_")}
    assert {name: value for name, value in named.items() if name != "held_by"} == counts


@in_virtual_time
async def test_a_metric_that_leaves_the_spec_leaves_the_series() -> None:
    both = [
        {
            "type": "External",
            "external": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "10"}},
        }
        for name in ("web", "rate")
    ]
    bench = Bench(hpa("web", metrics=both))
    bench.controller.start()
    await asyncio.sleep(1)
    assert set(of_metrics(await samples(bench.telemetry))) == {"web", "rate"}
    bench.source.put(hpa("web"))
    await asyncio.sleep(1)
    assert of_metrics(await samples(bench.telemetry)) == {"web": (10, 10, 1)}
    bench.metrics.values["web"] = DOWN
    await asyncio.sleep(15)
    assert of_metrics(await samples(bench.telemetry)) == {"web": (10,)}
    bench.source.drop("web")
    assert await samples(bench.telemetry) == {}
    await bench.controller.stop(5)


@in_virtual_time
async def test_the_series_of_an_hpa_end_where_another_replica_leads() -> None:
    owner = Switch()
    bench = Bench(hpa("web"), owner=owner)
    bench.controller.start()
    await asyncio.sleep(1)
    assert of_metrics(await samples(bench.telemetry))
    owner.on = False
    bench.controller.stand_by()
    assert await samples(bench.telemetry) == {}
    await bench.controller.stop(5)
