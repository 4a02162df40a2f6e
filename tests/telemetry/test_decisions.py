"""Series of decisions: only figures that exist become samples, and they end with their HPA."""

from typing import Any, cast

import msgspec
import structlog
from prometheus_client import parser
from support.engine import Workload, external, series

from hpad.api.metadata import Key
from hpad.engine.turn import Reconcile
from hpad.engine.view import HPA, Competitor
from hpad.telemetry import Telemetry

WEB, API = Key("default", "web"), Key("default", "api")


def decided(*answers: Any, key: Key = WEB, **fields: Any) -> Reconcile:
    """A reconcile of an HPA with the external metric `queue` (15 per replica) and two replicas."""
    work = Workload(external("queue", averageValue="15"), replicas=2)
    work.hpa = msgspec.structs.replace(work.hpa, metadata=msgspec.structs.replace(work.hpa.metadata, name=key.name))
    work.reconcile(*answers, **fields)
    assert work.done is not None
    return work.done


async def samples(telemetry: Telemetry) -> dict[tuple[str, ...], float]:
    """The samples of HPAs by their name without `hpad_hpa_` and by their labels other than the namespace."""
    text = (await telemetry.exposition()).decode()
    found = {}
    for family in parser.text_string_to_metric_families(text):
        for name, labels, value, *_ in family.samples:
            if name.startswith("hpad_hpa_"):
                assert labels.pop("namespace") == "default"
                found[name.removeprefix("hpad_hpa_"), labels.pop("hpa_name"), *labels.values()] = value
    return found


async def test_zero_is_a_sample() -> None:
    telemetry = Telemetry()
    telemetry.controller.decisions.decided(decided(series(0)))
    assert await samples(telemetry) == {
        ("min_replicas", "web"): 1,
        ("max_replicas", "web"): 10,
        ("current_replicas", "web"): 2,
        ("recommendation", "web"): 0,
        ("decision", "web"): 2,
        ("held_by", "web", "stabilization"): 1,
        ("metric_target", "web", "queue"): 15,
        ("metric_value", "web", "queue"): 0,
        ("metric_proposal", "web", "queue"): 0,
    }


async def test_each_decision_replaces_the_one_before() -> None:
    """Also what held it, and who competed: this one has no old sample of these."""
    telemetry = Telemetry()
    rival = (Competitor(HPA, "default/rival"),)
    telemetry.controller.decisions.decided(decided(series(1000), competitors=rival))
    found = await samples(telemetry)
    assert found["competing_writer", "web", "hpa", "default/rival"] == 1
    assert [name for name in found if name[0] == "held_by"]
    telemetry.controller.decisions.decided(decided(series(45)))
    found = await samples(telemetry)
    assert (found["decision", "web"], found["metric_value", "web", "queue"]) == (3, 22.5)
    assert not [name for name in found if name[0] in ("held_by", "competing_writer")]


async def test_the_series_end_with_the_hpa() -> None:
    telemetry = Telemetry()
    for key in (WEB, API):
        telemetry.controller.decisions.decided(decided(series(30), key=key))
    telemetry.controller.forget(WEB)
    assert {name[1] for name in await samples(telemetry)} == {"api"}


async def test_an_hpa_whose_figures_fail_takes_no_other_with_it() -> None:
    """It is logged once, not in each scrape."""
    telemetry = Telemetry()
    broken = msgspec.structs.replace(decided(series(30)), decision=cast(Any, None))
    for each in (broken, decided(series(30), key=API)):
        telemetry.controller.decisions.decided(each)
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            assert {name[1] for name in await samples(telemetry)} == {"api"}
    assert [(each["hpa"], each["log_level"]) for each in logged] == [("default/web", "error")]
