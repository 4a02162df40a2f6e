"""Where `hpad advise` has the past of HPAs from: Prometheus, or recordings of hpad."""

import argparse
import itertools
import sys
import urllib.parse
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from hpad.api import numbers
from hpad.api.metadata import Key
from hpad.cli import advise_hpas, advise_queries, moments
from hpad.cli.output import Failure, WrongUse
from hpad.engine import words
from hpad.settings import Settings
from hpad.simulation.advice.assessment import NotAssessed
from hpad.simulation.advice.past import HpaPast

_COARSE: Final = 60.0
_FINE: Final = 15.0
"""The period of the HPA controller. With a coarser step rescales merge, which matters little over days."""


class LookedAt(NamedTuple):
    """The time that is looked at."""

    begin: datetime
    end: datetime


class PastSource(NamedTuple):
    """The pasts of all HPAs, read one after the other, and what is known before.

    `name` is where they are from, `size` their number, None if it is not known. `notes` say what is left out; reading
    the pasts may add some. Reading raises HistoryError or RecordingError.
    """

    name: str
    pasts: Iterator[HpaPast]
    size: int | None = None
    unread: Sequence[NotAssessed] = ()
    notes: Sequence[str] = ()


class ReadingProgress:
    """Says on a terminal how many HPAs were read and assessed, on one line of standard error."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._read = "0 HPAs"
        self._assessed = 0
        self._width = 0

    def start(self) -> None:
        """Begins the line."""
        self._show()

    def read(self, done: int, of: int, samples: int) -> None:
        """Takes the progress of the reader (`ReadingOptions.progress`)."""
        self._read = f"{done} of {of} HPAs, {samples:,} values"
        self._show()

    def assessed(self) -> None:
        """Adds an HPA that is assessed."""
        self._assessed += 1
        self._show()

    def _show(self, end: str = "\r") -> None:
        if self._shown:
            text = f"read {self._read}; assessed {self._assessed}"
            self._width = max(self._width, len(text))
            print(text.ljust(self._width), end=end, file=sys.stderr, flush=True)

    def done(self) -> None:
        """Ends the line."""
        self._show(end="\n")


def add_arguments(group: argparse._ArgumentGroup) -> None:
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument("--prometheus", metavar="URL", help="range queries of this server")
    source.add_argument("--recording", metavar="FILE", help="file or folder of `hpad run --record`, with its HPAs")
    text = f"from this time on: {moments.FORMS} (default: 7d)"
    group.add_argument("--from", dest="begin", metavar="TIME", default="7d", help=text)
    group.add_argument("--to", dest="end", metavar="TIME", help="up to this time (default: now)")
    text = f"of values (1m; {_FINE:g}s if less than a day is read)"
    group.add_argument("--step", metavar="DURATION", type=numbers.some_seconds, default=None, help=text)
    text = "series with other names than those of kube-state-metrics and cAdvisor (YAML, docs/advise.md)"
    group.add_argument("--series", type=Path, metavar="FILE", help=text)
    text = "keep answers in this folder until all is read: after an error the same command goes on from there"
    group.add_argument("--resume", type=Path, metavar="DIR", help=text)
    text = "values that are read at most (default: 100000000)"
    group.add_argument("--most-values", metavar="N", type=numbers.whole(1), default=100_000_000, help=text)
    group.add_argument("--prometheus-token-file", type=Path, metavar="FILE", help="file with a bearer token")
    group.add_argument("--prometheus-ca-file", type=Path, metavar="FILE", help="authorities of the certificate (PEM)")


def source(
    args: argparse.Namespace,
    settings: Settings,
    span: LookedAt,
    progress: ReadingProgress,
    only: Collection[Key] | None = None,
) -> PastSource:
    """Returns the pasts of the HPAs that the arguments name, of `only` these if it is given. Raises Failure."""
    if args.step is None:
        args.step = _FINE if span.end - span.begin < timedelta(days=1) else _COARSE
    if args.recording is not None:
        return _recorded(args, span, only)
    # Imported late: these load requests.
    from hpad.simulation.advice import reading
    from hpad.simulation.advice.reading.series import DEFAULT, read_file
    from hpad.simulation.prometheus import QueriedPrometheus

    series = DEFAULT if args.series is None else read_file(args.series)
    known = advise_hpas.found(args, settings, only)
    server = QueriedPrometheus(args.prometheus, args.prometheus_token_file, args.prometheus_ca_file)
    options = reading.ReadingOptions(
        own=advise_queries.read(args, settings, known.hpas),
        most_samples=args.most_values,
        cache=args.resume,
        progress=progress.read,
    )
    pasts = reading.read(server, known.hpas, span.begin, span.end, args.step, series, options)
    progress.start()
    return PastSource(_without_user(args.prometheus), pasts, len(known.hpas), known.unread, known.notes)


def _without_user(url: str) -> str:
    """Returns a URL without a user and a password."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _recorded(args: argparse.Namespace, span: LookedAt, only: Collection[Key] | None) -> PastSource:
    from hpad.simulation.advice import own_history

    for flag, given in (("-f", args.filename), ("--series", args.series), ("--resume", args.resume)):
        if given:
            raise WrongUse(f"--recording has the HPAs and their values: leave out {flag}")
    named = advise_hpas.wanted(args)

    def wanted(key: Key) -> bool:
        return (only is None or key in only) and named(key)

    notes: list[str] = []
    pasts = own_history.recorded_pasts(
        args.recording, span.begin, span.end, args.step, wanted, lambda text: notes.append(f"left out: {text}")
    )
    first = next(pasts, None)
    if first is None:
        text = f"has no reconciles of such an HPA since {span.begin:%Y-%m-%d %H:%MZ}"
        text += f", or they span less than two steps (--step {words.span(args.step)})"
        raise Failure("; ".join((f"{args.recording}: {text}", *notes[:1])))
    return PastSource(args.recording, itertools.chain([first], pasts), notes=notes)
