"""The output of `hpad advise -o json`. Durations are in seconds, times in RFC 3339."""

from datetime import datetime
from typing import Any

from hpad.api.hpa import kind_of
from hpad.api.metadata import Key
from hpad.cli.advise_report import FleetAdvice
from hpad.simulation.advice import summary
from hpad.simulation.advice.assessment import Advice, Assessment, Facts, Figures


def as_json(found: FleetAdvice) -> dict[str, Any]:
    """Returns the advice on all HPAs: those with faults first, as in the text."""
    price, sums = found.price, summary.summed(found.assessments)
    return {
        "begin": _time(found.begin),
        "end": _time(found.end),
        "source": found.source,
        "notes": list(found.notes),
        "summary": {
            "hpas": sums.hpas,
            "withFaults": sums.faulty,
            "withAdvice": sums.advised,
            "samples": found.samples,
            **_priced("replicaHours", sums.replica_seconds, "cost", price),
            **_priced("savedReplicaHours", sums.saved, "savedCost", price),
            **_priced("addedReplicaHours", sums.added, "addedCost", price),
        },
        "items": [_item(each, price) for each in (*found.notable, *found.good)],
        "unread": [{**_named(each.key), "problem": each.problem} for each in found.unread],
    }


def _item(each: Assessment, price: float | None) -> dict[str, Any]:
    return {
        **_named(each.key),
        "verdict": each.verdict,
        "faults": [
            {"fault": found.fault.value, "severity": found.severity.value, "text": found.text}
            for found in each.findings
        ],
        "advice": None if each.advice is None else _advice(each, each.advice, price),
        "trust": {
            "level": each.trust.level.value,
            "agreement": None if each.trust.agreement is None else round(each.trust.agreement, 4),
            "text": each.trust.text,
        },
        "facts": _facts(each.facts, price),
        "readings": {
            address: {"source": reading.source, "expression": reading.expression, "problem": reading.problem}
            for address, reading in each.readings.items()
        },
        "notes": list(each.notes),
        "samples": each.samples,
    }


def _advice(each: Assessment, advice: Advice, price: float | None) -> dict[str, Any]:
    return {
        "text": advice.text,
        "changes": [{"path": to.path, "before": to.before, "after": to.after} for to in advice.changes],
        "saved": round(advice.saved, 4),
        **_priced("savedReplicaHours", summary.saved(each), "savedCost", price),
        "chosen": {"before": _figures(advice.before, price), "after": _figures(advice.after, price)},
        "checked": {"before": _figures(advice.checked_before, price), "after": _figures(advice.checked_after, price)},
    }


def _facts(facts: Facts, price: float | None) -> dict[str, Any]:
    sawtooth = facts.sawtooth
    return {
        "seconds": round(facts.seconds, 3),
        **_priced("replicaHours", facts.replica_seconds, "cost", price),
        "lowest": facts.lowest,
        "highest": facts.highest,
        "secondsAtMax": round(facts.at_maximum, 3),
        "longestSecondsAtMax": round(facts.longest_at_maximum, 3),
        "secondsAtMin": round(facts.at_minimum, 3),
        "secondsAboveGoal": None if facts.above_goal is None else round(facts.above_goal, 3),
        "secondsFailing": {reason: round(seconds, 3) for reason, seconds in facts.failing.items()},
        "rescales": facts.rescales,
        "flaps": facts.flaps,
        "sawtooth": None
        if sawtooth is None
        else {
            "begin": _time(sawtooth.begin),
            "end": _time(sawtooth.end),
            "rescales": sawtooth.rescales,
            "lowest": sawtooth.lowest,
            "highest": sawtooth.highest,
        },
        "idleReplicaHours": None if facts.idle is None else round(facts.idle / 3600, 4),
        "peak": facts.peak,
    }


def _figures(figures: Figures, price: float | None) -> dict[str, Any]:
    return {
        "seconds": round(figures.seconds, 3),
        **_priced("replicaHours", figures.replica_seconds, "cost", price),
        "secondsAboveGoal": round(figures.above_goal, 3),
        "secondsOverloaded": round(figures.overloaded, 3),
        "rescales": figures.rescales,
        "flaps": figures.flaps,
        "lowest": figures.lowest,
        "highest": figures.highest,
    }


def _priced(name: str, replica_seconds: float, cost: str, price: float | None) -> dict[str, float]:
    """Returns replica-hours, and what they cost if the price is known."""
    hours = replica_seconds / 3600
    found = {name: round(hours, 4)}
    return found if price is None else {**found, cost: round(hours * price, 4)}


def _named(key: Key) -> dict[str, str]:
    return {"namespace": key.namespace, "name": key.name, "kind": kind_of(key)}


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
