"""Writes docs/reference and the comments of config/hpad.yaml from the code: `make docs`.

`--check` writes nothing and exits with status 1 if one of them is not current.
"""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hpad import cli
from hpad.cli import COMMANDS, kubectl, main
from hpad.engine import annotations, stage
from hpad.lab.autoscaler import options
from hpad.settings import TABLE, Match, OpenedQueries, SourceLimits, SourceSettings
from hpad.settings.hpas import SharedBudget
from hpad.settings.notify import NotifyAfter, NotifyDestination, NotifySettings
from hpad.settings.rows import settings_in
from hpad.telemetry import Telemetry
from tools import api_reference, kind, sample
from tools.markdown import table

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
_NOTE = "<!-- Written by `make docs` from the code; changes made here are lost. -->"
_BUILT_IN = (
    *("metrics-server", "custom-metrics", "external-metrics"),
    *("rabbitmq", "celery", "prometheus", "redis", "http-json", "kubernetes-workload"),
    *("nats-jetstream", "kafka", "sqs", "keda-external", "postgresql", "cron", "seasonal", "static"),
)

_SCHEDULES = """## Schedules

`hpad.io/schedule` sets minimum, maximum or both while a window is open. Each window is a start in five fields as in
crontab(5) with at most 100 characters, a length in whole minutes up to 31 days, a time zone (UTC if none is given), and
the bounds:

    0 8 * * 1-5 for 10h in Europe/Berlin: min=5, max=40; 0 0 * * 6 for 48h: max=4

Of several open windows the largest minimum and the smallest maximum hold, together with those of the spec: a window
raises the minimum and lowers the maximum, and never goes beyond `maxReplicas`. A minimum above the maximum is lowered
to it. The bounds change with the first reconcile after the start or the end, which sets the count to the nearer bound
as for `minReplicas` and `maxReplicas`; a minimum also wakes a target that sleeps at zero. The length is elapsed time,
also where clocks change in the window; a start that the clocks skip comes at the next time that exists, and one that
they show twice counts once. While a window is open the HPA has the condition `ScheduleActive`. `hpad explain` names the
windows and their ends, and says when the bounds change next. In the section `hpas` of the configuration the windows may
also be a list.

[`config/hpas/office-hours.yaml`](../../config/hpas/office-hours.yaml) is an example.
"""
_PAUSING = """## Pausing

`kubectl annotate hpa web hpad.io/mode=paused` leaves the target alone: no decision is written, not even where the count
is outside minimum and maximum. `hpad.io/paused-until: 2026-11-30T08:00:00Z` does so until that time. A paused HPA goes
on reading its metrics and remembering what they asked for, so after the pause its windows know the past: no scale-down
comes early. Its status, `hpad explain` and the page show what it would do; it has the condition `Paused`, the state
`paused`, and the reason `paused` in `hpad_hpa_held_by` where it holds a count back.
"""
_METRIC_POLICIES = """## Metric policies

By default the largest proposal of the metrics decides. `hpad.io/metric-policy` sets another rule: an expression whose
operands are addresses of metrics, as above. An address with other characters than letters, digits and `_ . : / | @ -`
needs quotes, and so do a name that begins with a digit and the words of the syntax (`max`, `and`, …). A selector in
braces needs none.

| expression | the count |
| --- | --- |
| `max(a, b)`, `a or b` | the largest proposal |
| `min(a, b)` | the smallest proposal |
| `a and b` | grows if all ask for more, to the smallest; shrinks if all ask for fewer, to the largest |
| `a + b`, `sum(a, b)` | the sum, for metrics whose work does not overlap, such as two queues |
| `avg(a, b)`, `0.7*a + 0.3*b` | the mean, or the sum of shares, rounded up; a weight is at most 1000 |
| `first(a, b)` | the first one that can be read |

`+` binds closer than `and`, and `and` closer than `or`; parentheses may be up to 16 deep. A function alone, such as
`min`, is over all metrics. Metrics that the expression does not name are read and shown, and do not decide. In sums,
means and shares a metric counts with what it asks for without the tolerance, which applies to the sum instead.

While a metric cannot be read, it could ask for any count. Where that makes no difference to the value, the policy
decides without it: `first(a, b)` takes `b` while `a` fails. Else the count may grow to what is certain, `max(a, b)`
to `a`, and does not shrink; `min(a, b)` and `a and b` leave it as it is. A fallback in force counts as the proposal.
A metric that its fallback ignores is left out of its function; in a sum or with a weight it stays one that cannot be
read, because leaving it out would count it as 0.

[`config/hpas/metric-policy.yaml`](../../config/hpas/metric-policy.yaml) is an example. Conditions, events, `hpad
explain` and the status page name the policy and what each metric asks for. Thresholds of single metrics for the next
step are not shown with a policy.
"""
_IGNORED = """## Containers that do not count

A sidecar that works harder or less than the application distorts the CPU of the whole pod, and is often injected, so
that a ContainerResource metric for each other container is no answer. With `hpad.io/ignore-containers: istio-proxy` a
Resource metric is the usage of all other containers, related to their requests, which alone have to be set. A name that
no container has is no mistake: some pods may have the sidecar and others not. The field `ignore_containers` of the
configuration may also be a list of names.

A pod of ignored containers alone makes the metric fail, and so does a source whose adapter cannot leave out containers.
metrics-server can; Prometheus can where the query keeps the label of the container. Pods with requests of their own
(`spec.resources`) count with the rest of them, after the requests of the ignored containers.
"""
_SHARED = """## Pods that share labels

Kubernetes takes all pods of the namespace that match the selector of the target. A Job, a canary or a second Deployment
with the same labels then distorts the metrics, and two such HPAs with one selector do nothing at all
(`AmbiguousSelector`). With `hpad.io/pod-selection: owner` an HPA counts a pod only if the target is its controller, by
`metadata.ownerReferences`: the StatefulSet of a pod, or the Deployment of its ReplicaSet. Requests and usage of other
pods are left out of metrics of the types Resource, ContainerResource and Pods, and a `Value` of an Object or External
metric counts only the ready pods of the target. KEP-5325 proposes the same for Kubernetes.

Such an HPA competes with HPAs of the same target, and of a controller between the target and its pods or above the
target: HPAs of a custom resource and of the Deployment that it owns would scale the same pods. Another HPA without the
annotation that selects the same pods stays ambiguous, so both need it. Between a custom resource and its pods hpad
follows Deployments, ReplicaSets, StatefulSets and ReplicationControllers; pods behind other kinds do not belong to it.

For a Deployment hpad needs the right to list and watch ReplicaSets, which `config/rbac` grants. While it is not
known of a pod whether it belongs to the target, as before its ReplicaSet is seen or without that right, metrics of pods
and those with a `Value` fail: leaving the pod out could remove replicas. So they do where no matching pod belongs to
the target.
"""
_FIELDS = """## Fields of newer versions

Where a server has them, these fields of an HPA say the same as an annotation, and win over one that differs:
`HpadAnnotationsValid` is then False, with the reason `OverriddenAnnotation`. A server that does not know a field drops
it, and `hpad check` warns. No release up to Kubernetes 1.37 has any of the three, so names and limits are those of the
proposals.

| field | annotation | from |
| --- | --- | --- |
| `spec.syncPeriodSeconds`, 3 to 3600 | `hpad.io/sync-period` | KEP-6003 |
| `spec.selectionStrategy`: `LabelSelector` or `OwnerReference` | `hpad.io/pod-selection` | KEP-5325 |
| `external.fallback` of a metric: `replicas`, `failureDurationSeconds` | `hpad.io/fallback: replicas:N` | KEP-5679 |

The status has `fallbackStatus` and `firstFailureTime` of metrics with that fallback; hpad counts from the latter if it
remembers nothing of the HPA. Where the server counts generations of HPAs, as 1.37 does, the status and each condition
have `observedGeneration`.
"""
_SPARE = """## Spare replicas

`hpad.io/spare: 2` keeps two replicas more than the metrics want, so that a pod that fails costs no start of another;
`10%` is of what they want, rounded up. While they want none, none is spare. Windows, policies, `minReplicas` and
`maxReplicas` apply to all replicas together.

The metrics decide as without them, as if the other replicas had the whole load. So the values in status, page and
`hpad explain` are higher than those of single pods. So is a `Value`, which counts as shared by the ready pods: one that
does not fall as they grow, such as the length of a queue, would add replicas again and again, and needs an
`AverageValue`. Pods that are missing or not ready are spare first: up to that many, the target does not grow for them.
"""
_CANARIES = """## Canaries

`hpad.io/pods: role=stable` leaves pods out of the metrics that the selector of the target matches, such as canaries or
pods of a Job. Parts with semicolons between are for single metrics, by their addresses (but `#INDEX`):
`hpad.io/pods: "memory: role=stable"`. A metric per pod, or a Value, fails where no pod is left. Readiness, requests and
values of other pods do not count; the check for HPAs that share pods and the annotations about busy pods still take all
of them.

A canary of Argo Rollouts rarely needs it. With 10 replicas under a constant load:

| metric | 10 pods in all [1] | 1 pod on top (5 %) or 5 (50 %) [2] |
| --- | --- | --- |
| per pod, comes with load: CPU, requests | right | right; stable pods alone lack the canary's share |
| per pod, also without load: memory | right | at 50 % grows to the maximum: `memory: role=stable` |
| Value: latency | right | right; in Kubernetes 11 and 15, also below the goal |
| AverageValue of the whole target: a queue | right | right; in Kubernetes 11 and 10 in turns at 5 % |

[1] without traffic routing, or with `dynamicStableScale`; [2] with traffic routing.

Without traffic routing, stable pods alone are fewer than the replicas, and any metric of them asks for too few: at 50 %
for half. With canaries on top, 15 pods at their goal, or a queue of 15 shares, are no reason to have more than 10
replicas: what the canaries carry is missed once they are gone, and the target grows then.
Utilization is a mean: a canary at 109 % beside stable pods at 32 % looks as if all were well (argo-rollouts#4607).
The labels come from `canaryMetadata` and `stableMetadata` of the Rollout.
"""
_BUDGETS = """## Budgets

HPAs with the same `hpad.io/budget` never have more than its amount together, in any namespaces. The section `budgets`
of the configuration has the amounts, and may limit the namespaces whose HPAs share one:

```yaml
budgets:
  gpu: {replicas: 200}
  batch: {cores: 50, namespaces: ["team-*"]}
```

Each HPA has its minimum. What is left goes to the highest `hpad.io/budget-priority` first; HPAs of one priority that
want more than there is have it in proportion to what they want beyond their minimum, the first replica of each before
one more of another. As a lower `maxReplicas`, a budget cuts at once, without windows and policies, but neither below
the minimum nor below what `hpad.io/keep-busy` keeps. It never raises a count.

`cores` counts CPU requests: each replica of a target costs as much as its largest pod requests. A target without pods
is counted by its pod template; for a custom resource, hpad needs the right to list it.

What counts is `spec.replicas` of the targets. An HPA grows only into what the others do not hold: one of a higher
priority first wants more, the others give that up in their next reconciles, and it grows in its own next one, about one
sync period later than without a budget. An HPA that is paused, in shadow mode, yields, or cannot read its metrics keeps
what it has, and the others share the rest. A target that was scaled by hand beyond its part is cut in its next
reconcile, and the others do not grow before. After a start or a change of the leader, until the first reconcile of each
other HPA, an HPA grows only as far as it could if those wanted their `maxReplicas`.

Minima beyond the amount hold all the same; `hpad check` of configuration and HPAs names those of
replicas. With an unknown budget, or where it is unknown what a replica costs, the HPA does not grow beyond its minimum.
The condition `WithinBudget` says both. (An unknown one in the section `hpas` is
an error.) A budget belongs to one hpad (its replicas share it); a deleted HPA no longer counts, whatever its target
has, and neither does one whose target does not exist. `hpad explain` and the page show what the budget has for an HPA,
the series `hpad_budget_*` what is held and wanted of each. `hpad simulate` tries several HPAs with a
[budget](../simulate.md); `hpad backtest` and `hpad advise` look at single HPAs, without it.
"""
_PERIODS = """## Periods of single HPAs

`hpad.io/sync-period: 2s` reconciles one HPA every 2 seconds, whatever the `sync_period` of the daemon is, and
`hpad.io/sync-period: 10m` reconciles one less often. A changed period takes effect at once. These HPAs are spread over
their period, each by itself. An edited HPA is reconciled at once with any period. After a start or a change of the
leader, the first reconcile of an HPA comes within `sync_period`.

An HPA with a shorter period than `sync_period` has 0.6 of its own period to read its metrics, and uses an answer that
another HPA has caused only while it is younger than a third of its own period. Each reconcile may therefore cause a
call: settings of the source (`limits` with `rate`, `concurrency` and `fresh`) limit these as all others, and a `fresh`
that is set holds for all HPAs. A value is never newer than its source; metrics-server measures every 15 s by default.

With a longer period, windows and policies of `spec.behavior` keep their lengths. A window that is shorter than the
period holds only the latest recommendation. State of an earlier process counts as complete for four periods.
"""
_CONFIGURED = """## HPAs that cannot be annotated

The section `hpas` of the configuration gives annotations to HPAs. Each entry selects HPAs by `namespaces`, `names`
(both with patterns such as `worker-*`) and `labels`, and sets fields named as the annotations, with underscores:

```yaml
hpas:
  - namespaces: [shop]
    names: ["java-*"]
    initialization_period: 10m
  - labels: {tier: batch}
    tolerance_up: 0.05
    fallback: replicas:5
```

An entry that selects nothing by name, namespace or label is for every HPA. Of two entries that set the same field, the
later one wins; an annotation of the HPA itself wins over both. Annotations of the HPA that are invalid count as absent,
and hpad's default holds. A changed section takes effect by itself."""
_METRICS = """## One metric of several

A value holds for all metrics of the HPA, or it has parts with commas between: `METRIC=VALUE` for some metrics, and at
most one `VALUE` without METRIC for all others. METRIC is an address:

- `NAME`: all metrics of that name, or of that resource: `cpu` is both a Resource and a ContainerResource;
- `NAME{SELECTOR}`: the metrics of that name (Pods, Object, External) with that label selector, written as for kubectl:
  `queue_messages{queue=orders}`, `queue_messages{queue in (a,b),vhost=prod}`;
- `NAME{}`: the metrics of that name (Pods, Object, External) without a selector;
- `NAME@CONTAINER`: the ContainerResource metric of that container: `cpu@app`;
- `#INDEX`: the metric at that place in `spec.metrics`, counted from 0 as in messages of the API server: `#1` is
  `spec.metrics[1]`.

The most specific address of a metric wins, in any order: `#INDEX`, a selector or container, NAME, and last a value
without METRIC. `queue_messages{queue=orders}=replicas:5,ignore` ignores every metric but one.

Selectors are compared as Kubernetes parses them: the order of labels and values and white space do not matter,
`queue in (a)` is `queue=a`, and `queue notin (a)` is `queue!=a`. A name with a comma, a brace, or a `#` in front needs
`#INDEX`, and so does an address of more than 1,024 characters.

An address that matches no metric, two parts with the same address, or a value that cannot be read make the whole
annotation invalid, and the message names the addresses that exist.
[`config/hpas/two-queues.yaml`](../../config/hpas/two-queues.yaml) is an example.
"""
_ERRORS = """## Mistakes

An invalid annotation counts as absent; the other annotations and the HPA itself work. While an annotation is invalid,
or unknown to hpad under `hpad.io/`, the HPA has the condition `HpadAnnotationsValid` with the status False. Its message
names the mistakes (of an Autoscaler as `spec.options.NAME`), and so do the event `InvalidAnnotation`, the status page
and `hpad check`. An HPA without mistakes does not have the condition.
"""
_POLICIES = """## Policies

The policies of `hpad.io/fallback`:

- `hold`: no scale-down, and no change at all if every metric fails, as in Kubernetes;
- `replicas:5`: the metric asks for 5 replicas; the largest proposal of all metrics still wins, within minimum,
  maximum and behavior;
- `at-least:5`, `at-most:5`: the metric asks for the larger, or the smaller, of 5 and the current count;
- `last-good:10m`: the metric asks at once for the count of its last proposal, for ten minutes at most;
- `ignore`: the other metrics decide alone, also on a scale-down; without another metric as `hold`.

` after 60s` behind a policy replaces the failure duration for that policy. The condition ScalingActive shows the
failure all the same. A source may have a `fallback` for all HPAs that name none ([settings](settings.md)).
"""

KUBERNETES, OWN = "Kubernetes", "hpad"
CONDITIONS = {
    "AbleToScale": (KUBERNETES, "whether the target's scale can be read and written"),
    "ScalingActive": (KUBERNETES, "whether the metrics allow a decision"),
    "ScalingLimited": (KUBERNETES, "whether a limit changed the desired count"),
    "ScaledToZero": (KUBERNETES, "whether the HPA took the last replica (gate HPAScaleToZero)"),
    "ExternalMetricFallbackActive": (KUBERNETES, "a fallback replaces an External metric (KEP-5679)"),
    "HpadAnnotationsValid": (OWN, "False while [annotations](annotations.md) have mistakes, otherwise absent"),
    "ScheduleActive": (OWN, "a window of the HPA's [schedule](annotations.md#schedules) is open; otherwise absent"),
    "Paused": (OWN, "the HPA is [paused](annotations.md#pausing); otherwise absent"),
    "Shadow": (OWN, "the HPA is in [shadow mode](../shadow.md); otherwise absent"),
    "IdleFirst": (OWN, "with `hpad.io/scale-down-order: idle-first`, whether idle pods can be removed first"),
    "WithinBudget": (OWN, "whether the [budget](annotations.md#budgets) is known and has room for all minima"),
    "CompetingWriters": (OWN, "another client writes the replicas of the target, or the status of the HPA"),
}
REASONS = {
    "SucceededGetScale": ("AbleToScale", "the scale was read"),
    "FailedGetScale": ("AbleToScale", "the scale could not be read"),
    "ReadyForNewScale": ("AbleToScale", "no stabilization window holds the count"),
    "ScaleDownStabilized": ("AbleToScale", "a larger recommendation within the scale-down window holds the count"),
    "ScaleUpStabilized": ("AbleToScale", "a smaller recommendation within the scale-up window holds the count"),
    "SucceededRescale": ("AbleToScale", "the new count was written"),
    "FailedUpdateScale": ("AbleToScale", "the new count could not be written"),
    "TooLarge": (
        "AbleToScale, ScalingActive",
        "the HPA, its metrics and pods, or what is to be compared is [larger than hpad takes](../exactness.md#size)",
    ),
    "InvalidSpec": ("AbleToScale", "the spec of an Autoscaler is one that the API server would refuse in an HPA"),
    "StaleCache": ("AbleToScale", "a watch received nothing for `max_staleness`: hpad does not decide on old data"),
    "DryRun": ("AbleToScale, Shadow", "the count was decided and, with `--dry-run`, not written"),
    "Shadow": ("AbleToScale, Shadow", "the count was decided for the shadow, and not written"),
    "WindowOpen": ("ScheduleActive", "a window of the schedule is open"),
    "Paused": (
        "AbleToScale",
        "the HPA is paused, so the count was not written; also of the condition Paused",
    ),
    "CompetingHPA": ("AbleToScale", "another HPA scales the target, so the count was not written"),
    "ValidMetricFound": ("ScalingActive", "the metric named in the message decided"),
    "ScalingDisabled": ("ScalingActive", "the target was set to zero replicas"),
    "ScaleToZeroDisabled": ("ScalingActive, ScalingLimited", "minReplicas is 0 and the gate HPAScaleToZero is off"),
    "InvalidSelector": ("ScalingActive", "the selector of the target is missing or cannot be read"),
    "AmbiguousSelector": ("ScalingActive", "several HPAs select the same pods"),
    "InvalidMetricSourceType": ("ScalingActive", "a metric has a type that Kubernetes does not know"),
    "FailedGetResourceMetric": ("ScalingActive", "a Resource metric could not be read"),
    "FailedGetContainerResourceMetric": ("ScalingActive", "a ContainerResource metric could not be read"),
    "FailedGetPodsMetric": ("ScalingActive", "a Pods metric could not be read"),
    "FailedGetObjectMetric": ("ScalingActive", "an Object metric could not be read"),
    "FailedGetExternalMetric": ("ScalingActive", "an External metric could not be read"),
    "DesiredWithinRange": ("ScalingLimited", "no limit applies"),
    "TooFewReplicas": ("ScalingLimited", "minReplicas applies"),
    "TooManyReplicas": ("ScalingLimited", "maxReplicas applies"),
    "ScaleUpLimit": ("ScalingLimited", "a scale-up policy, or the limit of twice the count, applies"),
    "ScaleDownLimit": ("ScalingLimited", "a scale-down policy applies"),
    "OverriddenAnnotation": (
        "HpadAnnotationsValid",
        "a [field of the spec](annotations.md#fields-of-newer-versions) differs from its annotation, and wins",
    ),
    "ZeroDelayed": ("ScalingLimited", "`hpad.io/zero-after` or `hpad.io/initial-delay` keeps the last replica"),
    "BudgetLimit": ("ScalingLimited", "the budget has no more for the HPA"),
    "BusyPods": ("ScalingLimited", "`hpad.io/keep-busy` keeps pods with unfinished work"),
    "BusynessKnown": ("IdleFirst", "the last scale-down knew what each pod was working on"),
    "BusynessCounted": ("IdleFirst", "the source knows how many pods at most have work, and not which of them"),
    "BusynessUnknown": ("IdleFirst", "the metric of the pods' work could not be read; the message says why"),
    "ByOrdinal": ("IdleFirst", "a StatefulSet removes its pods by ordinal, so the annotation has no effect"),
    "BudgetShared": ("WithinBudget", "the budget is known, and the minima of its HPAs fit into it"),
    "BudgetUnknown": ("WithinBudget", "the settings have no such budget, or what a replica costs is unknown"),
    "MinimaExceedBudget": ("WithinBudget", "the minima of the HPAs that share it exceed it; they hold all the same"),
    "NotScaledToZero": ("ScaledToZero", "the target has replicas, or another client set it to zero"),
    "FallbackActive": ("ExternalMetricFallbackActive", "the fallback named in the message is in force"),
    "NoFallback": ("ExternalMetricFallbackActive", "no fallback is in force"),
    "InvalidAnnotation": ("HpadAnnotationsValid", "the value of an annotation is invalid, or matches no metric"),
    "UnknownAnnotation": ("HpadAnnotationsValid", "hpad knows no annotation of that name under `hpad.io/`"),
    "OtherHPA": ("CompetingWriters", "another HPA scales the same target"),
    "ScaleWritten": ("CompetingWriters", "another client set the replicas after hpad"),
    "StatusWritten": ("CompetingWriters", "another client writes the status of the HPA"),
}
EVENTS = {
    "SuccessfulRescale": ("Normal", "the new count was written; the message says why, in full"),
    "FailedRescale": ("Warning", "the new count could not be written"),
    "FailedGetScale": ("Warning", "the scale could not be read"),
    "FailedComputeMetricsReplicas": ("Warning", "no metric, or only some, could be computed"),
    "FailedUpdateStatus": ("Warning", "the status could not be written"),
    "SelectorRequired": ("Warning", "the scale has no selector"),
    "InvalidSelector": ("Warning", "the selector of the target cannot be read"),
    "AmbiguousSelector": ("Warning", "several HPAs select the same pods"),
    "FailedGet…Metric": ("Warning", "a metric of this type could not be read"),
    "InvalidMetricSourceType": ("Warning", "a metric has a type that Kubernetes does not know"),
    "FailedDeletionCost": ("Warning", "idle pods could not be marked, so a scale-down removes pods in any order"),
    "StaleCache": ("Warning", "hpad does not decide on old data"),
    "TooLarge": ("Warning", "hpad does not decide for what is too large"),
    "InvalidSpec": ("Warning", "hpad does not decide for an invalid spec"),
    "InvalidAnnotation": ("Warning", "an annotation under `hpad.io/` is invalid or unknown"),
    "LeaderElection": ("Normal", "on the Lease: another process leads now"),
}

_OF_EACH_HPA = """\
All series of an HPA name it by `namespace` and `hpa_name`, as those of Kubernetes do; the `hpa_name` of an Autoscaler
is `autoscaler/web`, since an HPA may have its name. They end when the HPA is deleted, or when another replica takes it
over.

`hpad_hpa_metric_*`, `hpad_hpa_*_replicas`, `hpad_hpa_recommendation`, `hpad_hpa_decision` and `hpad_hpa_held_by`
describe the last reconcile.

- `metric` is the shortest address that stands for one metric of the HPA: its name (`cpu`), the name with its selector
  (`queue_messages{queue=orders}`) or its container (`cpu@app`), or its place in `spec.metrics` (`#0`).
- Targets and values are in base units: cores, bytes, counts. For a target of type Utilization both are ratios: 0.5 is
  50 % of the request. For AverageValue both are per replica; while there is no replica, the value is the total.
- What is missing has no sample, and never the value 0. A metric that fails has no value, and no proposal unless a
  fallback gives one. A turn that does not read the metrics leaves their targets alone.
- An HPA has 5 such series, 3 for each of its metrics, and one for each reason that holds it: about 9 with one metric.
  5,000 HPAs with one metric are 45,000 samples in a scrape: about 4 MB of text, 0.2 s of a core in a thread of its
  own (`make bench` measures it), and 2.5 MB of memory."""
HELD_BY = {
    stage.TARGET_UNREADABLE: "the scale of the target cannot be read",
    stage.STALE: "a watch received nothing for `max_staleness`",
    stage.OVER_LIMITS: "the HPA, or its pods times its metrics, exceed a [limit of hpad](../exactness.md#size)",
    stage.NOT_VALID: "the spec of an Autoscaler is invalid",
    stage.STOPPED: "the target was set to zero replicas",
    stage.INVALID_SELECTOR: "the selector of the target is missing or cannot be read",
    stage.SHARED_PODS: "several HPAs select the same pods",
    stage.INVALID_METRICS: "all metrics fail, or some fail and the others ask for fewer replicas",
    stage.TOLERANCE: "without the tolerance the metrics would ask for another count",
    stage.STABILIZATION: "an earlier recommendation within a stabilization window",
    stage.UP_LIMIT: "a scale-up policy, or without `spec.behavior` the limit of twice the count",
    stage.DOWN_LIMIT: "a scale-down policy",
    stage.MAXIMUM: "maxReplicas",
    stage.MINIMUM: "minReplicas, or 1 while it is 0 without the gate HPAScaleToZero",
    stage.LAST_REPLICA: (
        "`hpad.io/zero-after` or `hpad.io/initial-delay` keeps the [last replica](../scale-to-zero.md#the-last-replica)"
    ),
    stage.SHARED_BUDGET: "the [budget](annotations.md#budgets) that it shares with other HPAs",
    stage.BUSY_PODS: "`hpad.io/keep-busy` keeps pods with [unfinished work](../idle-first.md)",
    stage.IN_DRY_RUN: "`dry_run`",
    stage.IN_SHADOW: "the HPA is in [shadow mode](../shadow.md)",
    stage.IS_PAUSED: "the HPA is [paused](annotations.md#pausing)",
    stage.COMPETING_HPA: "another HPA scales the target, and hpad yields to it",
    stage.WRITE_FAILED: "the API server refused the write",
}


def pages() -> dict[str, str]:
    """Returns the text of each page by its file name."""
    return {
        "settings.md": _settings(),
        "cli.md": _cli(),
        "annotations.md": _annotations(),
        "series.md": _series(),
        "conditions.md": _conditions(),
        "sources.md": _sources(),
        "api.md": _page("Paths and fields of the JSON API", *api_reference.parts()),
        "autoscaler.md": _page("Autoscaler", *kind.page()),
    }


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", _NOTE, *(part.strip("\n") for part in parts)]) + "\n"


def _settings() -> str:
    rows = [
        [
            f"`{row.name}`",
            _default(row.written),
            f"`HPAD_{row.name.upper()}`" if row.setting.group else "",
            row.setting.meaning,
        ]
        for row in TABLE.values()
    ]
    parts = [
        "Settings of the daemon, in a YAML file (`hpad run --config FILE`), in the environment, or as flags"
        " ([commands and flags](cli.md)). Flags override the environment, which overrides the file. `hpad config show`"
        " prints the settings in force; [`config/hpad.yaml`](../../config/hpad.yaml) is a sample with every setting."
        f" Changes of these take effect [while hpad runs](../operations.md#changed-settings): {_reloadable()}.",
        "YAML of settings and manifests is read as kubectl reads it: `yes`, `no`, `on` and `off` are booleans, `010`"
        " is 8, `1_000` is 1000. Only `y` and `n`, booleans there, are text.",
        table(["setting", "default", "environment variable", "meaning"], rows),
        "## Of every source\n\nIn `sources.NAME`, beside the settings of its adapter ([metric sources](sources.md)):",
        _meanings(SourceSettings),
        "`limits` of a source:",
        _meanings(SourceLimits),
        "`queries` of a source:",
        _meanings(OpenedQueries),
        "`budgets.NAME` has either `replicas` or `cores` ([budgets](annotations.md#budgets)):",
        _meanings(SharedBudget),
        "`notify` ([messages](../notify.md)):",
        _meanings(NotifySettings),
        "`notify.after`:",
        _meanings(NotifyAfter),
        "`notify.destinations.NAME`:",
        _meanings(NotifyDestination),
        "`match` of a source or a route:",
        _meanings(Match),
    ]
    return _page("Settings", *parts)


def _reloadable() -> str:
    return ", ".join(f"`{name}`" for name, row in TABLE.items() if row.setting.reloadable)


def _as_yaml(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return text.removesuffix("...\n").strip()


def _default(written: Any) -> str:
    """Returns a default as YAML, each entry of a mapping by itself; "" for none and for what is empty."""
    if isinstance(written, dict):
        return ", ".join(f"`{name}: {_as_yaml(value)}`" for name, value in written.items())
    return "" if written in (None, "", []) else f"`{_as_yaml(written)}`"


def _meanings(form: type[msgspec.Struct]) -> str:
    fields = settings_in(form)
    return table(["setting", "meaning"], [[f"`{name}`", setting.meaning] for name, setting in fields.items()])


def _parsers() -> Iterator[argparse.ArgumentParser]:
    """Yields the parsers of all commands, each followed by those of its subcommands."""
    program = argparse.ArgumentParser(prog="hpad")
    commands = program.add_subparsers()
    for name in COMMANDS:
        cli.add(commands, name)
    for parser in commands.choices.values():
        yield parser
        yield from _below(parser)
    plugin, _ = kubectl.make_parser()
    yield plugin
    yield from _below(plugin)


def _below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield inner
                yield from _below(inner)


def _cli() -> str:
    parts = ["Exit status: 0 success, 1 a failure that one line on stderr explains, 2 wrong use, 130 an interrupt."]
    for parser in _parsers():
        parts.append(f"## `{parser.prog}`")
        if parser.description:
            parts.extend(map(_paragraph, parser.description.strip("\n").split("\n\n")))
        rows = [_flag(action) for action in parser._actions if action.help != argparse.SUPPRESS and _is_shown(action)]
        if rows:
            parts.append(table(["argument", "meaning"], rows))
    return _page("Commands and flags", *parts)


def _paragraph(text: str) -> str:
    """Returns one paragraph of a description; an indented one is a table of columns, whose lines stay."""
    return f"```text\n{text.rstrip()}\n```" if text.startswith(" ") else " ".join(text.split())


def _is_shown(action: argparse.Action) -> bool:
    return not isinstance(action, argparse._SubParsersAction | argparse._HelpAction)


def _flag(action: argparse.Action) -> list[str]:
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if action.choices and not action.metavar:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    shown = " ".join(value) if isinstance(value, tuple) else str(value or "")
    if not action.option_strings:
        return [f"`{shown}`", _help(action)]
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    return [names if action.nargs == 0 else f"{names} `{shown}`", _help(action)]


def _help(action: argparse.Action) -> str:
    return " ".join(((action.help or "") % vars(action)).split())


def _annotations() -> str:
    if set(options.MEANINGS) != set(annotations.ANNOTATIONS):
        lacking = set(annotations.ANNOTATIONS) ^ set(options.MEANINGS)
        raise SystemExit(f"hpad/lab/autoscaler/options.py lacks annotations: {lacking}")
    rows = [
        [f"`{name}`", value, text, f"{annotations.ANNOTATIONS[name]:,}"]
        for name, (value, text) in options.MEANINGS.items()
    ]
    text = (
        "Annotations on an HPA set what the API has no field for. An HPA without them works as in Kubernetes. An"
        " [Autoscaler](autoscaler.md) has them as `spec.options`, without `hpad.io/`: `options: {mode: shadow}`. The"
        " last column has the number of characters that a value may have."
    )
    found = table(["annotation", "value", "meaning", "at most"], rows)
    chapters = (
        _CONFIGURED,
        _SCHEDULES,
        _PAUSING,
        _PERIODS,
        _SPARE,
        _BUDGETS,
        _POLICIES,
        _METRICS,
        _METRIC_POLICIES,
        _IGNORED,
        _FIELDS,
        _SHARED,
        _CANARIES,
        _ERRORS,
    )
    return _page("Annotations", text, found, *chapters)


def _series() -> str:
    rows = {}
    for collector in Telemetry().registry._collector_to_names:
        if hasattr(collector, "_labelnames"):
            kind, name = type(collector).__name__.lower(), collector._name
            rows[name + ("_total" if kind == "counter" else "")] = (
                kind,
                collector._labelnames,
                collector._documentation,
            )
        elif type(collector).__module__.startswith("hpad"):
            for family in collector.collect():
                name = family.name + ("_total" if family.type == "counter" else "")
                labels = getattr(family, "_labelnames", ()) or ()
                rows[name] = (family.type, labels, family.documentation)
    found = [
        [f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), text]
        for name, (kind, labels, text) in sorted(rows.items())
    ]
    intro = (
        "`/metrics` serves these series. Those that begin with `horizontal_pod_autoscaler_controller_`, `workqueue_`,"
        " `rest_client_` and `leader_election_` have the names that Kubernetes' own components use. `process_*` are"
        " series of the Prometheus client library."
    )
    if tuple(HELD_BY) != stage.HOLDS:
        raise SystemExit(f"tools/reference.py has other reasons than hpad/engine/stage.py: {stage.HOLDS}")
    reasons = [[f"`{name}`", text] for name, text in HELD_BY.items()]
    return _page(
        "Series",
        intro,
        table(["series", "type", "labels", "meaning"], found),
        "## Of each HPA",
        _OF_EACH_HPA,
        "## Reasons of `hpad_hpa_held_by`",
        "Several may hold an HPA at once. An HPA without a sample has, or gets, the replicas that its metrics ask for.",
        table(["reason", "what holds the replicas"], reasons),
    )


def _conditions() -> str:
    conditions = [[f"`{name}`", origin, text] for name, (origin, text) in CONDITIONS.items()]
    reasons = [[f"`{name}`", where, text] for name, (where, text) in REASONS.items()]
    events = [[f"`{name}`", kind, text] for name, (kind, text) in EVENTS.items()]
    return _page(
        "Conditions and events",
        "Conditions in the status of an HPA. Texts and reasons of Kubernetes are those of Kubernetes 1.36.",
        table(["condition", "defined by", "meaning"], conditions),
        "## Reasons",
        table(["reason", "condition", "meaning"], reasons),
        "## Events",
        "On the HPA. Their component is that of Kubernetes, `horizontal-pod-autoscaler`. The events of rescales"
        " give the former count and all reasons of the new one, after the text of Kubernetes.",
        table(["reason", "type", "meaning"], events),
    )


def _sources() -> str:
    os.environ["COLUMNS"] = "120"
    parts = ["Built-in adapters, as `hpad adapters describe NAME` prints them. Packages may add others."]
    for name in _BUILT_IN:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            main(["adapters", "describe", name])
        text = out.getvalue().split("\n", 1)[1].strip("\n")
        parts += [f"## `{name}`", f"```text\n{text}\n```"]
    return _page("Metric sources", *parts)


def stale(folder: Path = FOLDER) -> list[str]:
    """Returns the names of the pages that are not current."""
    return [
        name
        for name, text in pages().items()
        if not (folder / name).is_file() or (folder / name).read_text("utf-8") != text
    ]


def _sample_is_current() -> bool:
    text = sample.FILE.read_text("utf-8")
    return text == sample.current(text)


def run(arguments: Sequence[str]) -> int:
    """Writes the pages, or with `--check` compares them."""
    if list(arguments) == ["--check"]:
        found = [*stale(), *([] if _sample_is_current() else [sample.FILE.name])]
        if found:
            print(f"not current: {', '.join(found)}; run `make docs`", file=sys.stderr)
        return int(bool(found))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")
    sample.FILE.write_text(sample.current(sample.FILE.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
