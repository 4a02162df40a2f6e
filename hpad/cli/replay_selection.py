"""The part of a recording that `hpad replay` shows: `--hpa`, `--from` and `--to`."""

import argparse
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from hpad.api.text import meant, shown
from hpad.cli import moments
from hpad.cli.output import WrongUse
from hpad.clock import SystemClock
from hpad.records.format import RecordingError

Located = tuple[str, dict[str, Any]]
"""A scenario and its place, a file and line."""
_MOST_NAMES: Final = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_hpa(parser)
    parser.add_argument("--from", dest="begin", metavar="TIME", help="only steps since that time")
    parser.add_argument("--to", dest="end", metavar="TIME", help="only steps until that time")


def add_hpa(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hpa",
        metavar="[NAMESPACE/]NAME",
        action="append",
        default=[],
        help="only this HPA; may be repeated (default: all)",
    )


class Selection:
    """Selects scenarios by HPA and steps by time, and remembers what there was, for messages."""

    def __init__(self, hpas: Iterable[str] = (), begin: datetime | None = None, end: datetime | None = None) -> None:
        self._hpas = tuple(hpas)
        self._begin, self._end = begin, end
        self._names: dict[str, None] = {}
        self._first: datetime | None = None
        self._last: datetime | None = None
        self._found = False

    @classmethod
    def of(cls, args: argparse.Namespace) -> "Selection":
        """Returns the selection of the arguments. Raises Failure for an invalid time."""
        now = SystemClock().now()
        begin = None if args.begin is None else moments.parse("--from", args.begin, now)
        end = None if args.end is None else moments.through_second(moments.parse("--to", args.end, now))
        if begin is not None and end is not None and begin > end:
            raise WrongUse(f"--from {shown(args.begin)} is {_text(begin)}, after --to {shown(args.end)}, {_text(end)}")
        return cls(args.hpa, begin, end)

    @property
    def limited(self) -> bool:
        """Whether only an interval is selected."""
        return self._begin is not None or self._end is not None

    def scenarios(self, located: Iterable[Located]) -> Iterator[Located]:
        """Yields the scenarios of the selected HPAs. Raises RecordingError at the end for an HPA without any."""
        wanted = set(self._hpas)
        for place, scenario in located:
            namespace, name = _identity(scenario)
            self._names[f"{namespace}/{name}"] = None
            chosen = {each for each in self._hpas if each in (name, f"{namespace}/{name}")}
            wanted -= chosen
            if chosen or not self._hpas:
                yield place, scenario
        for missing in self._hpas:
            if missing in wanted:
                raise RecordingError(f"--hpa: no recording of the HPA {shown(missing)}{self._others(missing)}")

    def _others(self, missing: str) -> str:
        near = meant(missing, [*self._names, *(name.partition("/")[2] for name in self._names)])
        names = list(self._names)
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return near or f"; there are {', '.join(names[:_MOST_NAMES])}{more}"

    def covers(self, time: datetime) -> bool:
        """Returns whether a step of that time is selected."""
        self._first = time if self._first is None else min(self._first, time)
        self._last = time if self._last is None else max(self._last, time)
        selected = (self._begin is None or self._begin <= time) and (self._end is None or time <= self._end)
        self._found = self._found or selected
        return selected

    def check(self) -> None:
        """Raises RecordingError if an interval is selected that has no step."""
        if not self.limited or self._found or self._first is None or self._last is None:
            return
        flags = [
            f"{flag} {_text(time)}" for flag, time in (("--from", self._begin), ("--to", self._end)) if time is not None
        ]
        recorded = f"the recording is of {_text(self._first)} to {_text(self._last)}"
        raise RecordingError(f"{', '.join(flags)}: no step was recorded in that time; {recorded}")


def _identity(scenario: dict[str, Any]) -> tuple[str, str]:
    """Returns namespace and name of the HPA; texts that are missing, or no texts, are reported when it is decoded."""
    hpa = scenario.get("hpa")
    metadata = hpa.get("metadata") if isinstance(hpa, dict) else None
    found = metadata if isinstance(metadata, dict) else {}
    return str(found.get("namespace") or "default"), str(found.get("name") or "")


def _text(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
