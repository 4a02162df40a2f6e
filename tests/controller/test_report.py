"""Log lines about reconciles: each cause once, in plain words."""

import asyncio
from collections.abc import Sequence

import structlog
from support import virtual_time
from support.controller import Bench, Switch, annotated, hpa
from support.virtual_time import in_virtual_time

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.api.sample import AdapterError
from hpad.kube import errors


def lines(
    made: HorizontalPodAutoscaler, *phases: int | AdapterError, refusals: Sequence[errors.ApiError] = ()
) -> list[tuple[str, str]]:
    """Level and event of the log lines about an HPA whose metric has each of the phases for a minute (four turns)."""

    async def main() -> list[tuple[str, str]]:
        bench = Bench(made)
        bench.cluster.refusals = list(refusals)
        bench.controller.start()
        with structlog.testing.capture_logs() as logs:
            for phase in phases:
                bench.metrics.values["web"] = phase
                await asyncio.sleep(60)
        await bench.controller.stop(5)
        return [
            (line["log_level"], line["event"])
            for line in logs
            if line.get("hpa") == "default/web" and line["log_level"] != "debug"
        ]

    return virtual_time.run(main())


DOWN = AdapterError("the broker is down")


def test_a_fallback_is_logged_when_it_begins_and_when_it_ends() -> None:
    logged = lines(annotated(fallback="replicas:3 after 30s"), 10, DOWN, DOWN, DOWN, 30, 30)
    assert [event.partition(":")[0] for _, event in logged] == [
        "cannot decide",
        "a fallback begins",
        "scale web from 1 to 3",
        "a fallback ends",
        "keep 3",
    ]
    assert logged[1] == (
        "warning",
        "a fallback begins: external metric web falls back to 3 replicas, failing for 30s (the broker is down)",
    )
    assert logged[3] == ("info", "a fallback ends: external metric web can be read again")


def test_the_end_of_a_fallback_is_logged_while_the_metric_still_fails() -> None:
    logged = lines(annotated(fallback="last-good:1m"), 10, DOWN, DOWN, DOWN)
    begin, end = (event for _, event in logged if event.startswith("a fallback"))
    assert begin.startswith("a fallback begins: external metric web falls back to 1 replica, as wanted")
    assert end == "a fallback ends: external metric web fails: the broker is down"


def test_a_failure_is_logged_once_per_cause() -> None:
    """Also if its text counts seconds."""
    old = 'source "x": sample is {}s old, older than max_age 60s'
    ages = [AdapterError(old.format(seconds)) for seconds in (75, 135, 195)]
    assert lines(hpa("web"), 10, *ages) == [("warning", f"cannot decide: external metric web fails: {old.format(75)}")]


@in_virtual_time
async def test_a_failure_is_logged_again_after_another_replica_has_led() -> None:
    """Its log may have said since that the failure is over."""
    owner = Switch()
    bench = Bench(hpa("web"), owner=owner)
    bench.metrics.values["web"] = DOWN
    bench.controller.start()
    with structlog.testing.capture_logs() as logs:
        for leads in (True, False, True):
            owner.on = leads
            bench.takeover.changed()
            await asyncio.sleep(60)
    await bench.controller.stop(5)
    warnings = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert warnings == ["cannot decide: external metric web fails: the broker is down"] * 2


def test_another_cause_is_logged() -> None:
    logged = lines(hpa("web"), AdapterError("the broker answers 503"), AdapterError("the broker answers 401"), 10)
    assert [event for _, event in logged] == [
        "cannot decide: external metric web fails: the broker answers 503",
        "cannot decide: external metric web fails: the broker answers 401",
        "keep 1: external metric web at its target (10 / 10 per replica)",
    ]


def test_a_refused_write_is_logged() -> None:
    logged = lines(hpa("web"), 40, refusals=[errors.ApiError(403, "Forbidden", "not allowed")])
    assert logged[0] == (
        "warning",
        "scale web from 1 to 4: external metric web above target (40 / 10 per replica); not written: not allowed",
    )


@in_virtual_time
async def test_the_last_error_has_the_cause_and_conditions_have_the_text_of_kubernetes() -> None:
    bench = Bench(hpa("web"))
    bench.metrics.values["web"] = DOWN
    await bench.advance(0.5)
    last = bench.decisions.last(Key("default", "web"))
    assert last is not None
    assert last.error == "external metric web: the broker is down"
    (active,) = [each for each in bench.cluster.statuses[-1].conditions or () if each.type == "ScalingActive"]
    assert active.message == (
        "the HPA was unable to compute the replica count: "
        "unable to get external metric default/web/nil: the broker is down"
    )
