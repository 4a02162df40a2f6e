"""What the annotations under `hpad.io/` mean: for docs/reference/annotations.md and the options of an Autoscaler."""

import re
from collections.abc import Mapping
from typing import Final

from hpad.engine import annotations

MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    annotations.FALLBACK: (
        "POLICY, or `METRIC=POLICY,…`",
        "what replaces the proposal of a metric that cannot be read",
    ),
    annotations.FAILURE_DURATION: (
        "a whole number, 180 by default, or `METRIC=NUMBER,…`",
        "seconds that a metric must have failed before its fallback applies",
    ),
    annotations.ACTIVATION: (
        "a number, or `METRIC=NUMBER,…`",
        "where `minReplicas` is 0: an Object or External metric asks for replicas only while it is above this number",
    ),
    "hpad.io/zero-after": (
        "a duration from `0s` to `168h`",
        "where `minReplicas` is 0: the last replica goes once the metrics have asked for nothing for that long,"
        " whatever the scale-down window is ([scale to zero](../scale-to-zero.md#the-last-replica))",
    ),
    "hpad.io/initial-delay": (
        "a duration from `0s` to `168h`",
        "where `minReplicas` is 0: the last replica stays for that long after the HPA was created",
    ),
    "hpad.io/schedule": (
        "windows with semicolons between",
        "another minimum or maximum at certain times, such as `0 8 * * 1-5 for 10h in Europe/Berlin: min=5`"
        " ([schedules](#schedules))",
    ),
    "hpad.io/mode": (
        "`active`, `shadow` or `paused`",
        "shadow: hpad decides for a count of its own ([shadow mode](../shadow.md)); paused: metrics are read and"
        " remembered ([pausing](#pausing)). Neither writes anything to the target",
    ),
    "hpad.io/paused-until": (
        "a time with its zone, such as `2026-11-30T08:00:00Z`",
        "paused until then, with `hpad.io/mode: paused` or without; active afterwards",
    ),
    "hpad.io/tolerance-up": (
        "a number of 0 or more such as `0.05`",
        "by how much the ratio of usage to target must exceed 1 for more replicas, where `spec.behavior.scaleUp` has no"
        " `tolerance`; for servers without that field",
    ),
    "hpad.io/tolerance-down": (
        "a number of 0 or more",
        "the same below 1, for fewer replicas, where `spec.behavior.scaleDown` has no `tolerance`",
    ),
    "hpad.io/metric-policy": (
        "an expression such as `cpu and queue_messages{queue=orders}`",
        "how the proposals of the metrics give one count, instead of the largest proposal; see [Metric"
        " policies](#metric-policies)",
    ),
    "hpad.io/ignore-containers": (
        "names with commas between, such as `istio-proxy,log-agent`",
        "containers whose usage and requests are no part of Resource metrics (CPU and memory of the whole pod); metrics"
        " of type ContainerResource stay as they are",
    ),
    "hpad.io/pod-selection": (
        "`selector` (the default) or `owner`",
        "owner: of the pods that match the target's selector, only those count that belong to the target; see [Pods"
        " that share labels](#pods-that-share-labels)",
    ),
    "hpad.io/pods": (
        "a label selector such as `role=stable`, or `METRIC: SELECTOR; …`",
        "of the target's pods, only those with these labels count for the metrics; see [Canaries](#canaries)",
    ),
    "hpad.io/spare": (
        "a number such as `1`, or a percentage such as `10%`",
        "replicas on top of what the metrics want, up to `maxReplicas`, which the metrics do not count ([spare"
        " replicas](#spare-replicas))",
    ),
    "hpad.io/budget": (
        "the name of a budget of the configuration",
        "HPAs with the same budget never have more together than its amount ([budgets](#budgets))",
    ),
    "hpad.io/budget-priority": (
        "a whole number, 0 by default",
        "where a budget is short, HPAs with a higher number get replicas first",
    ),
    "hpad.io/scale-down-order": (
        "`default` or `idle-first`",
        "idle-first: a scale-down of a Deployment or ReplicaSet removes the pods with the least unfinished work"
        " ([idle workers first](../idle-first.md))",
    ),
    "hpad.io/keep-busy": (
        "`true` or `false` (the default)",
        "true: never fewer replicas than pods with unfinished work ([a floor at busy"
        " workers](../idle-first.md#a-floor-at-busy-workers))",
    ),
    "hpad.io/busy-metric": (
        "`NAME`, `NAME{SELECTOR}` or `#INDEX`, with ` above NUMBER` or without",
        "the metric of each pod's unfinished work for `hpad.io/scale-down-order` and `hpad.io/keep-busy`: an External"
        " metric of the HPA whose source knows it, or a Pods metric; by default all External metrics of the HPA"
        " ([where the work is read](../idle-first.md#where-the-work-is-read))",
    ),
    "hpad.io/sync-period": (
        "a duration from `1s` to `1h`",
        "how often this HPA is reconciled, instead of `sync_period`; see [Periods of single"
        " HPAs](#periods-of-single-hpas)",
    ),
    "hpad.io/initialization-period": (
        "a duration from `0s` to `24h`",
        "how long after its start the CPU usage of a pod counts only while it is ready, instead of"
        " `cpu_initialization_period`; for workloads that start slowly",
    ),
    "hpad.io/readiness-delay": (
        "a duration from `0s` to `24h`",
        "how long after its start a pod that is not ready counts as never ready yet, instead of"
        " `initial_readiness_delay`",
    ),
}
"""The form of each annotation's value, and what it does, in Markdown with links from docs/reference."""
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "hpad.io/mode": ("active", "shadow", "paused"),
    "hpad.io/pod-selection": ("selector", "owner"),
    "hpad.io/scale-down-order": ("default", "idle-first"),
    "hpad.io/keep-busy": ("true", "false"),
}
"""The values of the annotations that have only a few."""
_REFERENCE: Final = re.compile(r",? ?\(\[[^\]]*\]\([^)]*\)\)|[;,] see \[[^\]]*\]\([^)]*\)")
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def plain(name: str) -> str:
    """Returns what an annotation means as text without Markdown, for an option, which has no prefix."""
    value, meaning = (_LINK.sub(r"\1", _REFERENCE.sub("", text)) for text in MEANINGS[name])
    if meaning.partition(":")[0] not in CHOICES.get(name, ()):
        meaning = meaning[:1].upper() + meaning[1:]
    text = f"{meaning}. Value: {value.removesuffix('…')}".replace("`", "").replace("hpad.io/", "")
    return " ".join(text.split()) + ("…" if value.endswith("…") else ".")
