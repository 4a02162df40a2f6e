"""Assessments of HPAs without a past: what is said of them, as the page and the terminal get it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hpad.api.metadata import Key
from hpad.simulation.advice.assessment import (
    Advice,
    Assessment,
    Facts,
    Figures,
    FoundFault,
    HpaFault,
    Level,
    ModelTrust,
    SettingChange,
    Severity,
)
from hpad.simulation.advice.past import MetricReading

WEEK = 7 * 86_400.0
CPU_GOAL = "spec.metrics[0].resource.target.averageUtilization"


def facts(**given: Any) -> Facts:
    """Returns the facts of a week with five replicas, but for what is given."""
    known: dict[str, Any] = {
        "seconds": WEEK,
        "replica_seconds": 5 * WEEK,
        "lowest": 2,
        "highest": 9,
        "at_maximum": 0.0,
        "longest_at_maximum": 0.0,
        "at_minimum": 40_000.0,
        "above_goal": None,
        "rescales": 42,
        "flaps": 0,
        "sawtooth": None,
        "failing": {},
        "idle": None,
        "peak": None,
    }
    return Facts(**(known | given))


def figures(replica_seconds: float, seconds: float = WEEK, **given: Any) -> Figures:
    known: dict[str, Any] = {
        "above_goal": 600.0,
        "overloaded": 0.0,
        "rescales": 30,
        "flaps": 2,
        "lowest": 2,
        "highest": 9,
    }
    return Figures(seconds=seconds, replica_seconds=replica_seconds, **(known | given))


def unchecked(found: Assessment) -> Assessment:
    """Returns the assessment with its advice as a past of less than two days gives it: checked on no other days."""
    assert found.advice is not None
    none = figures(0.0, 0.0, above_goal=0.0, rescales=0, flaps=0, lowest=0, highest=0)
    advised = msgspec.structs.replace(found.advice, checked_before=none, checked_after=none)
    return msgspec.structs.replace(found, advice=advised)


def advice(saved: float, text: str = "cpu goal 50 -> 65 %", changes: Sequence[SettingChange] = ()) -> Advice:
    """Returns an advice that saves so many replica-seconds, four fifths of them on the first days."""
    first, last = 5 * WEEK * 0.7, 5 * WEEK * 0.3
    return Advice(
        changes=tuple(changes) or (SettingChange(CPU_GOAL, 50, 65),),
        text=text,
        before=figures(first, WEEK * 0.7),
        after=figures(first - saved * 0.8, WEEK * 0.7),
        checked_before=figures(last, WEEK * 0.3),
        checked_after=figures(last - saved * 0.2, WEEK * 0.3),
    )


def assessment(
    name: str,
    *,
    faults: Sequence[tuple[HpaFault, Severity]] = (),
    saved: float = 0.0,
    namespace: str = "shop",
    readings: Mapping[str, MetricReading] = {},
    **given: Any,
) -> Assessment:
    """Returns the assessment of an HPA with these faults. `given` are facts."""
    found = tuple(FoundFault(fault, severity, f"{fault}: seen for 3h20m") for fault, severity in faults)
    return Assessment(
        key=Key(namespace, name),
        facts=facts(**given),
        findings=found,
        trust=ModelTrust(0.93, Level.GOOD, "the model gives 93 % of the recorded curve"),
        advice=advice(saved) if saved else None,
        verdict=found[0].text if found else "nothing is wrong",
        readings=readings or {"cpu": MetricReading("cAdvisor and the requests", "sum(rate(x[5m]))")},
    )
