"""The output of `hpad advise -o json`. Durations are in seconds, times in RFC 3339."""

from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from hpad.api.hpa import kind_of
from hpad.api.metadata import Key
from hpad.simulation.advice import summary
from hpad.simulation.advice.assessment import Advice, Assessment, Facts, Figures, ModelTrust
from hpad.simulation.advice.summary import FleetAdvice


def as_json(found: FleetAdvice) -> dict[str, Any]:
    """Returns the advice on all HPAs: those with faults first, as in the text."""
    price, sums = found.price, summary.summed(found.assessments)
    return {
        "begin": time(found.begin),
        "end": time(found.end),
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
        "unread": [{**named(each.key), "problem": each.problem} for each in found.unread],
    }


def _item(each: Assessment, price: float | None) -> dict[str, Any]:
    return {
        **named(each.key),
        "verdict": each.verdict,
        "faults": [
            {"fault": found.fault.value, "severity": found.severity.value, "text": found.text}
            for found in each.findings
        ],
        "advice": None if each.advice is None else _advice(each, each.advice, price),
        "unadvised": each.unadvised or None,
        "trust": trust(each.trust),
        "facts": _facts(each.facts, price),
        "readings": {address: reading._asdict() for address, reading in each.readings.items()},
        "notes": list(each.notes),
        "samples": each.samples,
    }


def _advice(each: Assessment, advice: Advice, price: float | None) -> dict[str, Any]:
    return {
        "text": advice.text,
        "changes": [asdict(change) for change in advice.changes],
        "saved": round(advice.saved, 4),
        **_priced("savedReplicaHours", summary.saved(each), "savedCost", price),
        "chosen": {"before": figures(advice.before, price), "after": figures(advice.after, price)},
        "checked": _checked(advice, price) if advice.is_checked else None,
    }


def _checked(advice: Advice, price: float | None) -> dict[str, Any]:
    return {"before": figures(advice.checked_before, price), "after": figures(advice.checked_after, price)}


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
        "sawtooth": sawtooth and {**asdict(sawtooth), "begin": time(sawtooth.begin), "end": time(sawtooth.end)},
        "idleReplicaHours": None if facts.idle is None else round(facts.idle / 3600, 4),
        "peak": facts.peak,
    }


def trust(found: ModelTrust) -> dict[str, Any]:
    """Returns how far the model is trusted."""
    agreement = None if found.agreement is None else round(found.agreement, 4)
    return {"level": found.level.value, "agreement": agreement, "text": found.text}


def figures(found: Figures, price: float | None) -> dict[str, Any]:
    """Returns how one spec did."""
    return {
        "seconds": round(found.seconds, 3),
        **_priced("replicaHours", found.replica_seconds, "cost", price),
        "secondsAboveGoal": round(found.above_goal, 3),
        "secondsOverloaded": round(found.overloaded, 3),
        "rescales": found.rescales,
        "flaps": found.flaps,
        "lowest": found.lowest,
        "highest": found.highest,
    }


def _priced(name: str, replica_seconds: float, cost: str, price: float | None) -> dict[str, float]:
    """Returns replica-hours, and what they cost if the price is known."""
    hours = replica_seconds / 3600
    found = {name: round(hours, 4)}
    return found if price is None else {**found, cost: round(hours * price, 4)}


def named(key: Key) -> dict[str, str]:
    """Returns the names of an HPA."""
    return {"namespace": key.namespace, "name": key.name, "kind": kind_of(key)}


def time(at: datetime) -> str:
    """Returns a time in UTC."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
