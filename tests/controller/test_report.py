"""What the log says of reconciles: causes in plain words, each once."""

import asyncio
from typing import Any

import msgspec
import structlog
from support import virtual_time
from support.controller import Bench, hpa

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.api.sample import AdapterError
from hpad.engine import fallback_policy
from hpad.kube import errors


def annotated(**annotations: str) -> HorizontalPodAutoscaler:
    made = hpa("web")
    named = {f"{fallback_policy.PREFIX}{name}": value for name, value in annotations.items()}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=named))


def lines(made: HorizontalPodAutoscaler, *phases: int | AdapterError, **options: Any) -> list[tuple[str, str]]:
    """Level and event of what is said of an HPA whose metric answers each of the phases for a minute (four turns)."""

    async def main() -> list[tuple[str, str]]:
        bench = Bench(made, **options)
        bench.cluster.refusals = list(REFUSALS)
        bench.controller.start()
        with structlog.testing.capture_logs() as logs:
            for phase in phases:
                bench.metrics.values["web"] = phase
                await asyncio.sleep(60)
        await bench.controller.stop(5)
        REFUSALS.clear()
        return [
            (line["log_level"], line["event"])
            for line in logs
            if line.get("hpa") == "default/web" and line["log_level"] != "debug"
        ]

    return virtual_time.run(main())


REFUSALS: list[errors.ApiError] = []
DOWN = AdapterError("the broker is down")


def test_a_fallback_in_force_is_said_when_it_begins_and_when_it_ends() -> None:
    said = lines(annotated(fallback="replicas:3 after 30s"), 10, DOWN, DOWN, DOWN, 30, 30)
    assert [event.partition(":")[0] for _, event in said] == [
        "cannot decide",
        "a fallback begins",
        "scale web from 1 to 3",
        "a fallback ends",
        "keep 3",
    ]
    assert said[1] == (
        "warning",
        "a fallback begins: external metric web falls back to 3 replicas, failing for 30s (the broker is down)",
    )
    assert said[3] == ("info", "a fallback ends: external metric web can be read again")


def test_a_fallback_that_ends_while_the_metric_still_fails_says_so() -> None:
    said = lines(annotated(fallback="last-good:1m"), 10, DOWN, DOWN, DOWN)
    begun, ended = (event for _, event in said if event.startswith("a fallback"))
    assert begun.startswith("a fallback begins: external metric web falls back to 1 replica, as wanted")
    assert ended == "a fallback ends: external metric web fails: the broker is down"


def test_a_failure_is_told_once_and_by_its_cause() -> None:
    """Also where its text counts seconds."""
    old = 'source "x": sample is {}s old, older than max_age 60s'
    ages = [AdapterError(old.format(seconds)) for seconds in (75, 135, 195)]
    assert lines(hpa("web"), 10, *ages) == [("warning", f"cannot decide: external metric web fails: {old.format(75)}")]


def test_another_cause_is_news() -> None:
    said = lines(hpa("web"), AdapterError("the broker answers 503"), AdapterError("the broker answers 401"), 10)
    assert [event for _, event in said] == [
        "cannot decide: external metric web fails: the broker answers 503",
        "cannot decide: external metric web fails: the broker answers 401",
        "keep 1: external metric web at its target (10 / 10 per replica)",
    ]


def test_a_count_that_could_not_be_written_says_so() -> None:
    REFUSALS.append(errors.ApiError(403, "Forbidden", "not allowed"))
    said = lines(hpa("web"), 40)
    assert said[0] == (
        "warning",
        "scale web from 1 to 4: external metric web above target (40 / 10 per replica); not written: not allowed",
    )


def test_page_and_api_have_the_cause_and_the_conditions_the_words_of_kubernetes() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = DOWN
        await bench.advance(0.5)
        return bench

    bench = virtual_time.run(main())
    last = bench.store.get(Key("default", "web")).last
    assert last is not None
    assert last.error == "external metric web: the broker is down"
    (active,) = [held for held in bench.cluster.statuses[-1].conditions or () if held.type == "ScalingActive"]
    assert active.message == (
        "the HPA was unable to compute the replica count: "
        "unable to get external metric default/web/nil: the broker is down"
    )
