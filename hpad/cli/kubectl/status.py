"""`kubectl hpad status`: one table of HPAs, as `kubectl get hpa` prints it, with the state and the last decision."""

import argparse
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from hpad.cli import output
from hpad.cli.fetch import AUTOSCALER, local_name, looks
from hpad.cli.kubectl import connection, flags, names
from hpad.cli.output import WrongUse
from hpad.cli.program import add_command
from hpad.clock import SystemClock

_EPILOG: Final = """\
examples:
  kubectl hpad status                       the HPAs of the current namespace
  kubectl hpad status web deployment/api    the HPA web, and the one that scales the Deployment api
  kubectl hpad status autoscaler/web        the Autoscaler web, without an HPA of that name
  kubectl hpad status -A -o wide            all HPAs, with the last decision in one sentence
  kubectl hpad status -l tier=web -w        those with a label, and each row again when it changes, until Ctrl-C
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
_AGES: Final = 2
"""The last columns, which have ages."""
_NONE: Final = "-"
_HPAS: Final = "horizontalpodautoscaler.autoscaling"
_AUTOSCALERS: Final = "autoscaler.hpad.io"

Summary = Mapping[str, Any]


def add_parser(commands: Any) -> None:
    text = "show HPAs with their state, what holds their count, and the last decision"
    parser = add_command(commands, "status", run, text, epilog=_EPILOG, allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{names.FORMS} (default: all HPAs)")
    parser.add_argument("-l", "--selector", metavar="LABELS", default="", help="only HPAs with these labels")
    parser.add_argument("-w", "--watch", action="store_true", help="go on with each row that changes until Ctrl-C")
    flags.add_to_command(parser, ("wide", "name", "json", "yaml"))


def run(args: argparse.Namespace) -> int:
    """Prints the HPAs; raises Failure."""
    named = [names.parse(each) for each in args.names]
    if named and args.selector:
        raise WrongUse("-l and NAME exclude each other: leave one out")
    if args.watch and args.output not in ("", "wide"):
        raise WrongUse(f"-w shows a table: leave out -o {args.output}")
    with connection.opened(args) as (reader, namespace):
        found = names.chosen(reader, namespace, named, args.selector)
        table = _Table(all_namespaces=namespace is None, wide=args.output == "wide")
        if args.watch:
            table.show(found)
            for later in looks(lambda: names.chosen(reader, namespace, named, args.selector), connection.note):
                table.show_changes(later)
    if args.output in ("json", "yaml"):
        output.print_value(found[0] if len(named) == 1 and len(found) == 1 else {"items": found}, args.output)
    elif not found:
        connection.note("no HPAs found" if namespace is None else f"no HPAs found in namespace {namespace}")
    elif args.output == "name":
        for each in found:
            of = _AUTOSCALERS if each.get("kind") == AUTOSCALER else _HPAS
            print(f"{of}/{each['name']}")
    else:
        table.show(found)
    return 0


class _Table:
    """The table, whose rows may be printed again with the same columns."""

    def __init__(self, *, all_namespaces: bool, wide: bool) -> None:
        self._all_namespaces = all_namespaces
        self._wide = wide
        self._widths: list[int] = []
        self._shown: dict[str, tuple[str, ...]] = {}

    def show(self, found: Sequence[Summary]) -> None:
        """Prints the table."""
        head = (
            *(("NAMESPACE",) if self._all_namespaces else ()),
            *_COLUMNS,
            *(("DECISION",) if self._wide else ()),
        )
        rows = [head, *map(self._row, found)]
        self._widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        output.show_table(rows)
        self._shown = {_key(each): _lasting(each) for each in found}

    def show_changes(self, hpas: Sequence[Summary]) -> None:
        """Prints each row that changes."""
        found = {_key(each): each for each in hpas}
        for key in self._shown.keys() - found.keys():
            connection.note(f"{key} is gone")
        for key, each in found.items():
            if self._shown.get(key) != _lasting(each):
                cells = zip(self._row(each), self._widths, strict=True)
                print("  ".join(cell.ljust(width) for cell, width in cells).rstrip())
        self._shown = {key: _lasting(each) for key, each in found.items()}

    def _row(self, each: Summary) -> tuple[str, ...]:
        place = (each["namespace"],) if self._all_namespaces else ()
        return (*place, *_cells(each, SystemClock().now()), *((_sentence(each),) if self._wide else ()))


def _key(summary: Summary) -> str:
    return f"{summary['namespace']}/{local_name(summary)}"


def _lasting(summary: Summary) -> tuple[str, ...]:
    """Returns the cells without the ages, which are others at each look."""
    return _cells(summary, SystemClock().now())[:-_AGES]


def _cells(summary: Summary, now: datetime) -> tuple[str, ...]:
    target, last = summary["target"], summary.get("lastDecision") or {}
    return (
        local_name(summary),
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


def _age(moment: str | None, now: datetime) -> str:
    return _NONE if moment is None else output.age((now - datetime.fromisoformat(moment)).total_seconds())


def _sentence(summary: Summary) -> str:
    last = summary.get("lastDecision") or {}
    return " ".join((last.get("sentence") or "none by this replica yet").split())
