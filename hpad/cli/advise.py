"""`hpad advise`: what is wrong with the HPAs of a cluster, and which settings would have served better."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hpad.api import numbers
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.cli import advise_check, advise_hpas, advise_output, advise_past, advise_patches, manifest, moments, output
from hpad.cli.advise_past import LookedAt, PastSource, ReadingProgress
from hpad.cli.output import Failure, WrongUse
from hpad.clock import SystemClock
from hpad.records.format import RecordingError
from hpad.settings import Settings
from hpad.simulation.advice import page
from hpad.simulation.advice.assess import FleetError, assessed
from hpad.simulation.advice.assessment import AdviceOptions, Assessment, NotAssessed
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.summary import FleetAdvice
from hpad.simulation.history import HistoryError

_MOST_COLUMNS: Final = 120
HELP: Final = "say what is wrong with the HPAs of a cluster, and what would be better"
DESCRIPTION: Final = """\
Say what is wrong with the HPAs of a cluster, whichever controller runs them, and which settings would have served
better. It lists the HPAs, reads their past from Prometheus (kube-state-metrics and cAdvisor), or from recordings of
hpad, and runs the decisions of other settings over it. Nothing in the cluster changes; docs/advise.md says what is
measured and what is modelled."""

EPILOG: Final = """\
examples:
  hpad advise --prometheus http://localhost:9090
                                        all HPAs of the cluster over the last 7 days
  hpad advise --prometheus http://localhost:9090 -n shop web --from 14d
                                        one HPA over two weeks, with all that is known of it
  hpad advise --prometheus http://localhost:9090 -f hpas/ --price 0.04 --report advice.html
                                        the HPAs of a folder, with what they cost, and a page with charts
  hpad advise --prometheus http://localhost:9090 --patches patches/
                                        a patch for each HPA with advice, with the command that applies it
  hpad advise --recording ./records     the HPAs that `hpad run --record` has recorded, as they were then
  hpad advise --prometheus http://localhost:9090 --check web.yaml
                                        in a pipeline: is this change of an HPA worse than what stands in the cluster?

--check compares by the same model, over the same past. A change is worse if the overloaded time grows by more than a
tenth and 0.2 % of all time, replica-hours by more than 5 % without less overload, or flaps by more than half and one a
day. A file may have whole HPAs, or patches as --patches writes them.

-o json prints {"begin", "end", "source", "notes", "summary", "items", "unread"}. An item has "namespace", "name",
"kind", "verdict", "faults" [{"fault", "severity", "text"}], "advice" (null, or {"text", "changes" [{"path", "before",
"after"}], "saved", "savedReplicaHours", "chosen" and "checked" {"before", "after"}; "checked" is null for a past of
less than two days}), "unadvised" (why a fault has no advice, or null), "trust" {"level", "agreement", "text"}, "facts",
"readings", "notes" and "samples". "unread" has {"namespace", "name", "kind", "problem"}. With --check an item has
"outcome" (worse, notWorse or unknown), "reasons", "trust", "before" and "after". Durations are in seconds.

exit status: 0 success; 1 if nothing could be read; 2 for wrong use; 130 after Ctrl-C. With --check: 0 if no change is
worse, 1 if one is, 3 if one cannot be judged (the model is not trusted, there is no past, or the change adds or removes
metrics) and none is worse"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    advise_hpas.add_arguments(parser)
    advise_past.add_arguments(parser.add_argument_group("the past"))
    _add_model(parser.add_argument_group("the model"))
    parser.add_argument("--price", metavar="PRICE", type=numbers.number, default=None, help="of one replica per hour")
    parser.add_argument("--all", action="store_true", help="show every HPA in full, also those without a fault")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page (HTML) with charts")
    text = "write a patch for each HPA with advice, for `kubectl patch --patch-file` and kustomize"
    parser.add_argument("--patches", type=Path, metavar="DIR", help=text)
    text = "say whether the HPAs of this file or folder, or patches of them, would do worse; see the exit status"
    parser.add_argument("--check", metavar="FILE", help=text)
    output.add_format(parser)
    output.add_color(parser)


def _add_model(group: argparse._ArgumentGroup) -> None:
    defaults = AdviceOptions._field_defaults
    text = f"of a replica until it is ready ({defaults['startup']:g}s)"
    group.add_argument("--startup", metavar="DURATION", type=numbers.seconds, default=defaults["startup"], help=text)
    text = f"until a value is seen ({defaults['lag']:g}s)"
    group.add_argument("--lag", metavar="DURATION", type=numbers.seconds, default=defaults["lag"], help=text)
    text = f"replica-hours that less overload may cost ({100 * defaults['budget']:g})"
    group.add_argument("--budget", metavar="PERCENT", type=numbers.number, default=100 * defaults["budget"], help=text)
    text = "settings in YAML: tolerance, periods, feature gates, annotations of HPAs"
    group.add_argument("--config", type=Path, metavar="FILE", help=text)
    text = "processes that assess HPAs (default: one per core)"
    group.add_argument("--workers", metavar="N", type=numbers.whole(1, 64), default=None, help=text)


def run(args: argparse.Namespace) -> int:
    settings = manifest.tunables(args)
    if args.check is not None:
        return _check(args, settings)
    _check_places(args)
    advice = _advised(args, settings, _span(args))
    if args.report is not None:
        output.write_report(args.report, page.page(advice))
    if args.patches is not None:
        files = advise_patches.write(args.patches, advice)
        print(f"hpad: {len(files)} patch{'' if len(files) == 1 else 'es'} in {args.patches}", file=sys.stderr)
    lines = advise_output.lines(advice, whole=args.all or bool(args.names), width=_width())
    output.show(args, advise_output.as_json(advice), lines, _MOST_COLUMNS)
    return 0 if advice.assessments else 1


def _check_places(args: argparse.Namespace) -> None:
    """Raises Failure where something could not be written in the end, after minutes of reading."""
    if args.report is not None and not args.report.parent.is_dir():
        raise Failure(f"--report {args.report}: there is no folder {args.report.parent}")
    if args.patches is not None:
        advise_patches.check(args.patches)


def _width() -> int | None:
    columns = output.width()
    return None if columns is None else min(columns, _MOST_COLUMNS)


def _check(args: argparse.Namespace, settings: Settings) -> int:
    """Compares the HPAs of --check with those of now; returns the exit status."""
    if args.names or args.report is not None or args.patches is not None:
        raise WrongUse("--check says how the HPAs of its file compare: leave out NAME, --report and --patches")
    span, progress = _span(args), ReadingProgress()
    try:
        changes = advise_check.Changes(args.check, args, settings)
        source = advise_past.source(args, settings, span, progress, changes.keys)
        found = advise_check.results(changes, source, _options(args, settings), _workers(args, source))
    except WrongUse:
        raise
    except (Failure, HistoryError, RecordingError, FleetError) as error:
        print(f"hpad: cannot be judged: {error}", file=sys.stderr)
        return advise_check.UNKNOWN
    for note in source.notes:
        print(f"hpad: {note}", file=sys.stderr)
    output.show(args, advise_check.as_json(found, span, args.price), advise_check.lines(found, args.price))
    return advise_check.status(found)


def _span(args: argparse.Namespace) -> LookedAt:
    now = SystemClock().now()
    end = now if args.end is None else moments.parse("--to", args.end, now)
    begin = moments.parse("--from", args.begin, now)
    if begin >= end:
        raise WrongUse(f"--from {args.begin} is not before --to {args.end or 'now'}")
    return LookedAt(begin, end)


def _options(args: argparse.Namespace, settings: Settings) -> AdviceOptions:
    return AdviceOptions(
        tunables=settings.tunables,
        period=settings.sync_period.total_seconds(),
        startup=args.startup,
        lag=args.lag,
        budget=args.budget / 100,
    )


def _advised(args: argparse.Namespace, settings: Settings, span: LookedAt) -> FleetAdvice:
    progress = ReadingProgress()
    source = advise_past.source(args, settings, span, progress)
    hpas: dict[Key, HorizontalPodAutoscaler] = {}
    assessments: list[Assessment] = []
    unread: list[NotAssessed] = list(source.unread)
    for each in assessed(_noted(source.pasts, hpas), _options(args, settings), _workers(args, source)):
        if isinstance(each, NotAssessed):
            unread.append(each)
        elif not each.facts.seconds and not each.findings:
            unread.append(NotAssessed(each.key, each.verdict))
        else:
            assessments.append(each)
        progress.assessed()
    progress.done()
    begin, end = _known(assessments) or span
    return FleetAdvice(
        begin,
        end,
        source=source.name,
        hpas=hpas,
        assessments=assessments,
        unread=unread,
        notes=source.notes,
        price=args.price,
    )


def _known(assessments: Sequence[Assessment]) -> LookedAt | None:
    """Returns the time that was read: another one than asked for where a recording is short, or a reading resumed."""
    charts = [each.chart for each in assessments if each.chart is not None]
    if not charts:
        return None
    first, last = min(each.begin for each in charts), max(each.end for each in charts)
    return LookedAt(datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC))


def _noted(pasts: Iterator[HpaPast], hpas: dict[Key, HorizontalPodAutoscaler]) -> Iterator[HpaPast]:
    """Yields the pasts, and keeps their HPAs."""
    for past in pasts:
        hpas[past.hpa.key] = past.hpa
        yield past


def _workers(args: argparse.Namespace, source: PastSource) -> int:
    """Returns the number of processes; 0 for a single HPA, which needs none of its own."""
    most = args.workers or os.cpu_count() or 1
    if source.size is None:
        return most
    return min(most, source.size) if source.size > 1 else 0
