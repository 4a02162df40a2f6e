"""Series of decisions: only figures that exist become samples, and they end with their HPA."""

import structlog
from prometheus_client import parser

from hpad.api.metadata import Key
from hpad.telemetry import Telemetry
from hpad.telemetry.controller import HpaFigures, MetricFigures

WEB = Key("shop", "web")
NOTHING = HpaFigures(1, 10, None, None, None, (), ())


async def samples(telemetry: Telemetry) -> dict[tuple[str, ...], float]:
    """The samples of HPAs by their name without `hpad_hpa_` and by their labels other than the namespace."""
    text = (await telemetry.exposition()).decode()
    found = {}
    for family in parser.text_string_to_metric_families(text):
        for name, labels, value, *_ in family.samples:
            if name.startswith("hpad_hpa_"):
                assert labels.pop("namespace") == "shop"
                found[name.removeprefix("hpad_hpa_"), labels.pop("hpa_name"), *labels.values()] = value
    return found


async def test_each_figure_is_a_series() -> None:
    telemetry = Telemetry()
    metrics = (
        MetricFigures("cpu", 0.5, 0.61, 5),
        MetricFigures("queue_messages{queue=orders}", 15.0, 26.7, 6),
    )
    telemetry.controller.decisions.decided(WEB, lambda: HpaFigures(2, 5, 4, 6, 5, ("maximum", "dry_run"), metrics))
    assert await samples(telemetry) == {
        ("min_replicas", "web"): 2,
        ("max_replicas", "web"): 5,
        ("current_replicas", "web"): 4,
        ("recommendation", "web"): 6,
        ("decision", "web"): 5,
        ("held_by", "web", "maximum"): 1,
        ("held_by", "web", "dry_run"): 1,
        ("metric_target", "web", "cpu"): 0.5,
        ("metric_value", "web", "cpu"): 0.61,
        ("metric_proposal", "web", "cpu"): 5,
        ("metric_target", "web", "queue_messages{queue=orders}"): 15,
        ("metric_value", "web", "queue_messages{queue=orders}"): 26.7,
        ("metric_proposal", "web", "queue_messages{queue=orders}"): 6,
    }


async def test_zero_is_a_sample_and_a_missing_figure_is_none() -> None:
    telemetry = Telemetry()
    zero = HpaFigures(0, 5, 0, 0, 0, (), (MetricFigures("queue", 1.0, 0.0, 0), MetricFigures("rate", None, None, None)))
    telemetry.controller.decisions.decided(WEB, lambda: zero)
    telemetry.controller.decisions.decided(Key("shop", "api"), lambda: NOTHING)
    found = await samples(telemetry)
    of_web = {name: value for name, value in found.items() if name[1] == "web"}
    assert of_web == {
        ("min_replicas", "web"): 0,
        ("max_replicas", "web"): 5,
        ("current_replicas", "web"): 0,
        ("recommendation", "web"): 0,
        ("decision", "web"): 0,
        ("metric_target", "web", "queue"): 1,
        ("metric_value", "web", "queue"): 0,
        ("metric_proposal", "web", "queue"): 0,
    }
    assert {name for name in found if name[1] == "api"} == {("min_replicas", "api"), ("max_replicas", "api")}


async def test_each_decision_replaces_the_one_before() -> None:
    """Also its metrics: one that left the HPA, or fails now, has no old sample."""
    telemetry = Telemetry()
    metrics = (MetricFigures("cpu", 0.5, 0.61, 5), MetricFigures("queue", 15.0, 26.7, 6))
    telemetry.controller.decisions.decided(WEB, lambda: HpaFigures(2, 5, 4, 6, 5, ("maximum",), metrics))
    telemetry.controller.decisions.decided(
        WEB, lambda: HpaFigures(2, 9, 5, None, None, (), (MetricFigures("cpu", 0.5, None, None),))
    )
    assert await samples(telemetry) == {
        ("min_replicas", "web"): 2,
        ("max_replicas", "web"): 9,
        ("current_replicas", "web"): 5,
        ("metric_target", "web", "cpu"): 0.5,
    }


async def test_the_series_end_with_the_hpa() -> None:
    telemetry = Telemetry()
    other = Key("shop", "api")
    for key in (WEB, other):
        telemetry.controller.decisions.decided(key, lambda: NOTHING)
    telemetry.controller.forget(WEB)
    assert {name for _, name in await samples(telemetry)} == {"api"}


async def test_an_hpa_whose_figures_fail_takes_no_other_with_it() -> None:
    """It is logged once, not in each scrape."""
    telemetry = Telemetry()
    decisions = telemetry.controller.decisions
    decisions.decided(WEB, lambda: 1 / 0)
    decisions.decided(Key("shop", "api"), lambda: NOTHING)
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            assert {name for name in await samples(telemetry)} == {("min_replicas", "api"), ("max_replicas", "api")}
    assert [(each["hpa"], each["log_level"]) for each in logged] == [("shop/web", "error")]
