"""Where `hpad advise` has the past of HPAs from: Prometheus, or recordings of hpad."""

import argparse
import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from hpad.api.metadata import Key
from hpad.cli import advise_hpas, fetch, moments, numbers, own_queries
from hpad.cli.output import Failure, WrongUse
from hpad.settings import Settings
from hpad.simulation.advice.fleet import NotAssessed
from hpad.simulation.advice.past import HpaPast


class LookedAt(NamedTuple):
    """The time that is looked at."""

    begin: datetime
    end: datetime


class PastSource(NamedTuple):
    """The pasts of all HPAs, read one after the other, and what is known before.

    `name` is where they are from, `size` their number, None if it is not known. Reading raises HistoryError or
    RecordingError.
    """

    name: str
    pasts: Iterator[HpaPast]
    size: int | None = None
    unread: Sequence[NotAssessed] = ()
    notes: Sequence[str] = ()


def add_arguments(group: argparse._ArgumentGroup) -> None:
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument("--prometheus", metavar="URL", help="range queries of this server")
    source.add_argument("--recording", metavar="FILE", help="file or folder of `hpad run --record`, with its HPAs")
    text = f"from this time on: {moments.FORMS} (default: 168h, 7 days)"
    group.add_argument("--from", dest="begin", metavar="TIME", default="168h", help=text)
    group.add_argument("--to", dest="end", metavar="TIME", help="up to this time (default: now)")
    group.add_argument("--step", metavar="DURATION", type=numbers.some_seconds, default=60.0, help="of values (1m)")
    group.add_argument("--prometheus-token-file", type=Path, metavar="FILE", help="file with a bearer token")
    group.add_argument("--prometheus-ca-file", type=Path, metavar="FILE", help="authorities of the certificate (PEM)")


def source(args: argparse.Namespace, settings: Settings, span: LookedAt) -> PastSource:
    """Returns the pasts that the arguments name. Raises Failure."""
    if args.recording is not None:
        return _recorded(args, span)
    return _queried(args, settings, span)


def _queried(args: argparse.Namespace, settings: Settings, span: LookedAt) -> PastSource:
    from hpad.simulation.advice import reading  # imported late: it loads requests
    from hpad.simulation.prometheus import QueriedPrometheus

    known = advise_hpas.found(args, settings)
    server = QueriedPrometheus(args.prometheus, args.prometheus_token_file, args.prometheus_ca_file)
    options = reading.ReadingOptions(own=own_queries.read(args, settings, known.hpas))
    pasts = reading.read(server, known.hpas, span.begin, span.end, args.step, options=options)
    return PastSource(args.prometheus, pasts, len(known.hpas), known.unread, known.notes)


def _recorded(args: argparse.Namespace, span: LookedAt) -> PastSource:
    from hpad.simulation.advice import own_history

    if args.filename or args.kubeconfig or args.context:
        raise WrongUse("--recording has its own HPAs: leave out -f, --kubeconfig and --context")
    asked = [fetch.parsed(name) for name in args.names]

    def wanted(key: Key) -> bool:
        return advise_hpas.is_wanted(key, args.namespace, asked)

    pasts = own_history.recorded_pasts(args.recording, span.begin, span.end, args.step, wanted)
    first = next(pasts, None)
    if first is None:
        raise Failure(f"{args.recording}: has no reconciles of such an HPA since {span.begin:%Y-%m-%d %H:%MZ}")
    return PastSource(args.recording, itertools.chain([first], pasts))
