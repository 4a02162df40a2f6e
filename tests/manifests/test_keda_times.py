"""Polling interval and cooldown periods of a ScaledObject."""

from typing import Any

import pytest
from support.scaled_objects import CRON, RABBITMQ, scaled

from hpad.api.problem import Invalid
from hpad.manifests.keda import scaledobject
from hpad.manifests.keda.conversion import Converted

PERIOD = "hpad.io/sync-period"


def converted(*triggers: Any, window: int | None = None, **spec: Any) -> Converted:
    if window is not None:
        down = {"scaleDown": {"stabilizationWindowSeconds": window}}
        spec["advanced"] = {"horizontalPodAutoscalerConfig": {"behavior": down}}
    return scaledobject.convert(scaled(*(triggers or (RABBITMQ,)), **spec))


def window_of(found: Converted) -> int | None:
    assert found.hpa is not None
    window = found.hpa["spec"].get("behavior", {}).get("scaleDown", {}).get("stabilizationWindowSeconds")
    assert window is None or isinstance(window, int)
    return window


def noted(found: Converted, field: str) -> list[bool]:
    """Returns of each note on a field whether it is a loss."""
    return [note.lost for note in found.notes if note.field == f"spec.{field}"]


CACHED = {**RABBITMQ, "useCachedMetrics": True}


@pytest.mark.parametrize(
    ("triggers", "seconds", "period"),
    [
        ((RABBITMQ,), 5, "5s"),
        ((RABBITMQ,), 15, None),
        ((RABBITMQ,), 30, None),
        ((RABBITMQ,), 120, None),
        ((CACHED,), 30, "30s"),
        ((CACHED, CRON), 120, "120s"),
        ((CACHED,), 7200, "3600s"),
        ((CACHED, RABBITMQ), 120, None),
    ],
)
def test_a_polling_interval_is_the_sync_period_where_keda_reads_as_often(
    triggers: tuple[Any, ...], seconds: int, period: str | None
) -> None:
    """While there are replicas, KEDA's HPA asks every 15 s whatever the interval is, unless the answers are cached."""
    found = converted(*triggers, pollingInterval=seconds)
    assert found.hpa is not None
    assert found.hpa["metadata"].get("annotations", {}).get(PERIOD) == period
    assert noted(found, "pollingInterval") == [False]


def test_an_interval_of_zero_is_refused_as_in_keda() -> None:
    with pytest.raises(Invalid, match="pollingInterval"):
        converted(pollingInterval=0)


@pytest.mark.parametrize(
    ("spec", "window", "result", "lost"),
    [
        ({}, None, None, []),
        ({"cooldownPeriod": 300}, None, None, [False]),
        ({"cooldownPeriod": 600}, None, 600, [False]),
        ({"cooldownPeriod": 5000}, None, 3600, [True]),
        ({"cooldownPeriod": 60}, None, None, [True]),
        ({"cooldownPeriod": 60}, 60, 60, [False]),
        ({"cooldownPeriod": 600}, 60, 60, [True]),
        ({}, 60, 60, [False]),
        ({"cooldownPeriod": 60, "minReplicaCount": 1}, None, None, [False]),
    ],
)
def test_a_cooldown_is_the_scale_down_window_where_that_is_free(
    spec: dict[str, int], window: int | None, result: int | None, lost: list[bool]
) -> None:
    found = converted(window=window, **spec)
    assert window_of(found) == result
    assert noted(found, "cooldownPeriod") == lost


@pytest.mark.parametrize(("cooldown", "window", "advised"), [(60, None, 60), (7200, 60, 3600)])
def test_the_advice_about_a_cooldown_is_a_window_that_the_api_accepts(
    cooldown: int, window: int | None, advised: int
) -> None:
    [note] = [
        note for note in converted(window=window, cooldownPeriod=cooldown).notes if note.field == "spec.cooldownPeriod"
    ]
    assert f"set stabilizationWindowSeconds of scaleDown to {advised}," in note.text
    if advised == cooldown:
        assert noted(converted(window=advised, cooldownPeriod=cooldown), "cooldownPeriod") == [False]


@pytest.mark.parametrize(
    ("spec", "lost"),
    [
        ({"initialCooldownPeriod": 120}, [False]),
        ({"initialCooldownPeriod": 301}, [True]),
        ({"initialCooldownPeriod": 301, "cooldownPeriod": 600}, [False]),
        ({"initialCooldownPeriod": 301, "minReplicaCount": 1}, [False]),
    ],
)
def test_an_initial_cooldown_is_covered_by_the_window_of_a_new_hpa(spec: dict[str, int], lost: list[bool]) -> None:
    assert noted(converted(**spec), "initialCooldownPeriod") == lost
