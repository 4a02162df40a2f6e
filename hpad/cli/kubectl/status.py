"""`kubectl hpad status`: one table of HPAs, as `kubectl get hpa` prints it, with the state and the last decision."""

import argparse
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from hpad.cli import output
from hpad.cli.kubectl import connection, flags, listing, names
from hpad.clock import SystemClock

_EPILOG: Final = """\
examples:
  kubectl hpad status                       the HPAs of the current namespace
  kubectl hpad status web deployment/api    the HPA web, and the one that scales the Deployment api
  kubectl hpad status -A -o wide            all HPAs, with the last decision in one sentence
  kubectl hpad status -A -o json | jq -r '.items[] | select(.states | index("failing")) | .name'

STATE: failing (the last decision failed, also in part), atMax (at maxReplicas), limited (the maximum or a policy keeps
the count from what the metrics ask for), fallback (a fallback replaces a metric), competing (another client scales the
target), paused (the target is left alone), shadow (hpad keeps a count of its own, and leaves the target alone), dryRun
(nothing is written); "-" is none of these. HELD-BY: why the target does not have the count that the metrics ask for;
docs/reference/series.md lists the reasons. DESIRED: the last count that was decided; "-" before the first one.
LAST-SCALE, DECIDED: the time since the last rescale, and since the last decision.

exit status: 0 success, 1 if hpad does not answer or there is no such HPA, 2 wrong use
"""
_COLUMNS: Final = (
    *("NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "DESIRED"),
    *("STATE", "HELD-BY", "LAST-SCALE", "DECIDED"),
)
_MOST_TARGETS: Final = 3
_NONE: Final = "-"

Summary = Mapping[str, Any]


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "status",
        help="show HPAs with their state, what holds their count, and the last decision",
        description="Show HPAs with their state, what holds their count, and the last decision.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="NAME, hpa/NAME or deployment/NAME (default: all HPAs)"
    )
    flags.add_to_command(parser, ("wide", "name", "json", "yaml"))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the HPAs; raises Failure."""
    named = [names.parse(each) for each in args.names]
    with connection.opened(args) as (fleet, namespace, _):
        found = listing.chosen(fleet, namespace, named)
    if args.output in ("json", "yaml"):
        flags.show(found[0] if len(named) == 1 and len(found) == 1 else {"items": found}, args.output)
    elif not found:
        connection.note("no HPAs found" if namespace is None else f"no HPAs found in namespace {namespace}")
    elif args.output == "name":
        for each in found:
            print(f"horizontalpodautoscaler.autoscaling/{each['name']}")
    else:
        output.show_table(_table(found, all_namespaces=namespace is None, wide=args.output == "wide"))
    return 0


def _table(found: Sequence[Summary], *, all_namespaces: bool, wide: bool) -> list[tuple[str, ...]]:
    now = SystemClock().now()
    head = (*(("NAMESPACE",) if all_namespaces else ()), *_COLUMNS, *(("DECISION",) if wide else ()))
    rows = [head]
    for each in found:
        place = (each["namespace"],) if all_namespaces else ()
        rows.append((*place, *_cells(each, now), *((_sentence(each),) if wide else ())))
    return rows


def _cells(summary: Summary, now: datetime) -> tuple[str, ...]:
    target, last = summary["target"], summary.get("lastDecision") or {}
    return (
        summary["name"],
        f"{target['kind']}/{target['name']}",
        _targets(summary["metrics"]),
        *(str(summary[field]) for field in ("minReplicas", "maxReplicas", "currentReplicas")),
        _desired(summary),
        ",".join(summary["states"]) or _NONE,
        last.get("heldBy") or _NONE,
        _age(summary.get("lastScaleTime"), now),
        _age(last.get("time"), now),
    )


def _desired(summary: Summary) -> str:
    """Returns the desired count. While no metric could be read yet, the status has 0, which min does not allow."""
    desired = summary["desiredReplicas"]
    is_unknown = desired == 0 < min(summary["minReplicas"], summary["currentReplicas"])
    return _NONE if is_unknown else str(desired)


def _targets(metrics: Sequence[Mapping[str, Any]]) -> str:
    """Returns the metrics as `kubectl get hpa` shows them: `cpu: 43%/50%`, the first three."""
    texts = [_metric(each) for each in metrics[:_MOST_TARGETS]]
    if len(metrics) > _MOST_TARGETS:
        texts.append(f"{len(metrics) - _MOST_TARGETS} more...")
    return ", ".join(texts) or "<none>"


def _metric(metric: Mapping[str, Any]) -> str:
    goal = metric.get("target")
    current = metric.get("current") or "<unknown>"
    return f"{metric['address']}: {current}{f'/{goal}' if goal else ''}"


def _age(time: str | None, now: datetime) -> str:
    return _NONE if time is None else output.age((now - datetime.fromisoformat(time)).total_seconds())


def _sentence(summary: Summary) -> str:
    last = summary.get("lastDecision") or {}
    return " ".join((last.get("sentence") or "none by this replica yet").split())
