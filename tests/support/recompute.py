"""Recomputes a decision from the JSON of its trace alone, by the published rules and without the engine.

Errors of metrics, fallback counts and the number of ready pods of an Object or External metric are taken from the
trace. Everything else follows from values, requests, groups, past recommendations and policies.
"""

from typing import Any

from hpad.api.quantity import (
    MAX_INT32,
    MAX_INT64,
    ceil_int32,
    float_to_int32,
    int32,
    int64,
    parse_milli,
    quotient,
    truncated,
)

Json = dict[str, Any]


def desired(trace: Json) -> int:
    """Returns the replica count that follows from the trace."""
    replicas = trace["replicas"]
    current, low, high = replicas["current"], replicas["min"], replicas["max"]
    if "halt" in trace:
        return current
    if not trace.get("metrics") and "chosen" not in trace:
        return kept(trace, high if current > high else low)
    proposals = [proposal(metric, replicas, set(trace.get("gates", ()))) for metric in trace.get("metrics", [])]
    recommended = recommendation(trace.get("metrics", []), proposals, current)
    if recommended is None:
        return current
    stable = stabilized(trace["stabilization"], recommended, current, trace["time"])
    count = limited(trace, stable, current, low, high)
    return kept(trace, max(count, low) if current == 0 else count)


def kept(trace: Json, count: int) -> int:
    """Returns the count that keeps the busy pods."""
    spared = trace.get("spared")
    if spared is None or "floor" not in spared:
        return count
    return min(trace["replicas"]["current"], max(count, spared["floor"]))


def proposal(metric: Json, replicas: Json, gates: set[str]) -> int | None:
    """Returns the count that one metric proposes, None where it proposes nothing."""
    if "error" in metric or "fallback" in metric:
        return metric.get("proposal")
    count = _by_type(metric, replicas, gates)
    if "HPANegativeExternalSum" in gates:
        count = max(0, count)
    if "activation" not in metric:
        return count
    threshold, value = parse_milli(metric["activation"]["threshold"]), _total(metric, gates)
    activated = (count or 1) if value > threshold else 0
    assert metric["activation"].get("measured", activated) == count
    return activated


def _by_type(metric: Json, replicas: Json, gates: set[str]) -> int:
    current, observed, pods = replicas["current"], replicas["observed"], metric["usage"].get("pods")
    if metric["type"] in ("Resource", "ContainerResource", "Pods"):
        return _by_pods(metric, current, gates)
    total, amount = _total(metric, gates), parse_milli(metric["target"]["amount"])
    if metric["target"]["type"] == "AverageValue":
        ratio = quotient(float(total), float(amount) * float(observed))
        return observed if _within(metric, ratio) else _capped(quotient(float(total), float(amount)))
    ratio = quotient(float(total), float(amount))
    if current == 0:
        return _capped(ratio)
    return current if _within(metric, ratio) else _capped(ratio * pods)


def _total(metric: Json, gates: set[str]) -> int:
    sample = metric["sample"]
    if "value" in sample:
        return min(MAX_INT64, parse_milli(sample["value"]))
    total = 0
    for value in map(parse_milli, sample["values"]):
        total += value
        negative = total < 0 and metric["target"]["type"] == "AverageValue" and "HPANegativeExternalSum" not in gates
        if total > MAX_INT64 or negative:
            return MAX_INT64
    return total


def _within(metric: Json, ratio: float) -> bool:
    allowed = metric["tolerance"]
    return 1.0 - allowed["down"] <= ratio <= 1.0 + allowed["up"]


def _capped(count: float) -> int:
    return MAX_INT32 if count > MAX_INT32 else ceil_int32(count)


def _by_pods(metric: Json, current: int, gates: set[str]) -> int:
    by_group: dict[str, list[Json]] = {}
    for pod in metric.get("pods", ()):
        by_group.setdefault(pod["group"], []).append(pod)
    counted = [*by_group.get("ready", ()), *by_group.get("unlisted", ())]
    lacking = len(by_group.get("lacking", ()))
    up = _capped if "HPAHugeProposals" in gates else ceil_int32
    values = [(parse_milli(pod["value"]), _request(pod)) for pod in counted]
    ratio = _ratio(metric, values)
    filled = [*by_group.get("missing", ()), *(by_group.get("unready", ()) if ratio > 1.0 else ())]
    if not filled and not (lacking and ratio > 1.0):
        pods = len(by_group.get("ready", ())) + lacking
        return current if _within(metric, ratio) else up(ratio * pods)
    if filled and (ratio > 1.0 or ratio < 1.0):
        values += [(_assumed(metric, pod, ratio), _request(pod)) for pod in filled]
    pods = len(values) if filled else len(by_group.get("ready", ()))
    cautious = _ratio(metric, values)
    if lacking and ratio > 1.0:
        cautious = quotient(cautious * pods, pods + lacking)
    pods += lacking
    turned = (ratio < 1.0 < cautious) or (cautious < 1.0 < ratio)
    if turned or _within(metric, cautious):
        return current
    count = up(cautious * pods)
    against = count > current if cautious < 1.0 else cautious > 1.0 and count < current
    return current if against else count


def _request(pod: Json) -> int | None:
    return parse_milli(pod["request"]) if "request" in pod else None


def _ratio(metric: Json, values: list[tuple[int, int | None]]) -> float:
    target = metric["target"]
    if target["type"] != "Utilization":
        mean = min(MAX_INT64, truncated(sum(value for value, _ in values), len(values)))
        return quotient(mean, parse_milli(target["amount"]))
    used = sum(value for value, request in values if request is not None)
    requested = sum(request for _, request in values if request is not None)
    return quotient(int32(truncated(int64(used * 100), requested)), int(target["amount"]))


def _assumed(metric: Json, pod: Json, ratio: float) -> int:
    """Returns the value that counts for a missing or unready pod; compares it with the one in the trace."""
    value = 0
    if ratio < 1.0:
        target, request = metric["target"], _request(pod)
        if target["type"] == "Utilization":
            assert request is not None
            value = truncated(request * max(100, int(target["amount"])), 100)
        else:
            value = parse_milli(target["amount"])
    assert parse_milli(pod["assumed"]) == value
    return value


def recommendation(metrics: list[Json], proposals: list[int | None], current: int) -> int | None:
    """Returns the largest proposal; None where the count stays because metrics failed."""
    failed = any("error" in metric and "fallback" not in metric for metric in metrics)
    counts = [count for count in proposals if count is not None]
    if not counts:
        return None
    largest = _largest(counts)
    return None if failed and largest < current else max(0, largest)


def _largest(counts: list[int]) -> int:
    largest = 0
    for count in counts:
        if largest == 0 or count > largest:
            largest = count
    return largest


def stabilized(step: Json, recommended: int, current: int, now: str) -> int:
    """Returns the count after the stabilization windows."""
    past = [(_seconds(now) - _seconds(entry["time"]), entry["replicas"]) for entry in step["recommendations"]]
    down = step["downWindowSeconds"]
    if "upWindowSeconds" not in step:
        return max([recommended, *(count for age, count in past if age <= down)])
    low = min([recommended, *(count for age, count in past if age < step["upWindowSeconds"])])
    high = max([recommended, *(count for age, count in past if age < down)])
    return min(max(current, low), high)


def _seconds(time: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(time).timestamp()


def limited(trace: Json, count: int, current: int, low: int, high: int) -> int:
    """Returns the count after policies, minimum and maximum."""
    policies = trace.get("policies")
    if "upWindowSeconds" not in trace["stabilization"]:
        reach = float_to_int32(max(2.0 * current, 4.0))
        return low if count < low else min(count, high, reach)
    if count == current:
        return count
    assert policies is not None
    assert policies["direction"] == ("up" if count > current else "down")
    reach = _reach(policies, current)
    return min(count, reach, high) if count > current else max(count, reach, low)


def _reach(policies: Json, current: int) -> int:
    up = policies["direction"] == "up"
    if policies["select"] == "Disabled":
        return current
    counts, count = [], 0
    for rule in policies.get("rules", ()):
        if rule["type"] == "Pods":
            count = int32(rule["start"] + (rule["value"] if up else -rule["value"]))
        elif rule["type"] == "Percent":
            exact = float(rule["start"]) * (1 + (1 if up else -1) * float(rule["value"]) / 100)
            count = ceil_int32(exact) if up else float_to_int32(exact)
        counts.append(count)
    pick = max if (policies["select"] != "Min") == up else min
    return max(current, pick(counts)) if up else min(current, pick(counts))
