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


def annotation(found: Converted, name: str) -> str | None:
    assert found.hpa is not None
    value = found.hpa["metadata"].get("annotations", {}).get(name)
    assert value is None or isinstance(value, str)
    return value


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
    assert annotation(found, PERIOD) == period
    assert noted(found, "pollingInterval") == [False]


def test_an_interval_of_zero_is_refused_as_in_keda() -> None:
    with pytest.raises(Invalid, match="pollingInterval"):
        converted(pollingInterval=0)


@pytest.mark.parametrize(
    ("spec", "window", "result", "lost"),
    [
        ({}, None, None, []),
        ({"cooldownPeriod": 300}, None, None, [False]),
        ({"cooldownPeriod": 600}, None, "10m", [False]),
        ({"cooldownPeriod": 5000}, None, "1h23m20s", [False]),
        ({"cooldownPeriod": 60}, None, "1m", [False]),
        ({"cooldownPeriod": 0}, None, "0s", [False]),
        ({"cooldownPeriod": 60}, 60, None, [False]),
        ({"cooldownPeriod": 600}, 60, "10m", [False]),
        ({}, 60, "5m", [False]),
        ({"cooldownPeriod": 800_000}, None, "168h", [True]),
        ({"cooldownPeriod": 60, "minReplicaCount": 1}, None, None, [False]),
    ],
)
def test_a_cooldown_is_the_time_without_work_unless_the_window_is_as_long(
    spec: dict[str, int], window: int | None, result: str | None, lost: list[bool]
) -> None:
    found = converted(window=window, **spec)
    assert annotation(found, "hpad.io/zero-after") == result
    assert window_of(found) == window
    assert noted(found, "cooldownPeriod") == lost


def test_policies_that_bound_the_step_to_zero_are_named() -> None:
    policies = [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    behavior = {"scaleDown": {"policies": policies}}
    found = converted(cooldownPeriod=60, advanced={"horizontalPodAutoscalerConfig": {"behavior": behavior}})
    [note] = [note for note in found.notes if note.field == "spec.cooldownPeriod"]
    assert "the policies of scaleDown bound this step" in note.text


@pytest.mark.parametrize(
    ("spec", "result"),
    [
        ({"initialCooldownPeriod": 120}, "2m"),
        ({"initialCooldownPeriod": 0}, None),
        ({"initialCooldownPeriod": 120, "minReplicaCount": 1}, None),
    ],
)
def test_an_initial_cooldown_is_the_initial_delay(spec: dict[str, int], result: str | None) -> None:
    found = converted(**spec)
    assert annotation(found, "hpad.io/initial-delay") == result
    assert noted(found, "initialCooldownPeriod") == [False]
