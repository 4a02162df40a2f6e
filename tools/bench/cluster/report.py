"""What was measured as a table, and as JSON."""

import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from tools.bench.cluster.measure import Figures
from tools.bench.cluster.worlds import ROOT

_NONE = "-"
_HEADS = (
    ("HPAs", ""), ("server", ""), ("controller", ""), ("rec/s", ""), ("period", "s"), ("late p50", "ms"),
    ("late p99", "ms"), ("late max", "ms"), ("CPU-s per 1,000", "controller"), ("CPU-s per 1,000", "servers"),
    ("requests", "each"), ("lists", "ns, period"), ("resident", "MiB"), ("slope", "MiB/h"), ("busy stretch", "ms"),
    ("loop waits", "ms"), ("first round", "s"), ("machine", "busy"), ("pace", "ms"),
)  # fmt: skip


def table(found: Sequence[Figures]) -> str:
    """Returns aligned rows, one for each run, and the requests of each run below."""
    lines = aligned(_HEADS, [_row(each) for each in found])
    details = [f"{each.controller} at {each.hpas:,}: {_details(each)}" for each in found]
    return "\n".join(["cluster: what a reconcile costs", "", *lines, "", *details])


def aligned(heads: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns lines with the heads, their units, and the rows, all columns aligned to the right."""
    lines = [[head for head, _ in heads], [unit for _, unit in heads], *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]


def _row(each: Figures) -> list[str]:
    servers = {name: spent for name, spent in each.cpu.items() if name != each.controller}
    slope = _NONE if each.slope is None else f"{each.slope:+.0f} ±{each.slope_margin:.0f}"
    return [
        f"{each.hpas:,}", each.server, each.controller, f"{each.rate:.1f}", number(each.period, 2),
        ms(each.late.p50), ms(each.late.p99), ms(each.late.most), f"{each.cpu[each.controller]:.2f}",
        f"{sum(servers.values()):.2f}", f"{each.requests_each:.2f}", f"{each.lists:.2f}",
        f"{each.resident[each.controller]:.0f}", slope, ms(each.stretch), ms(each.wait),
        number(each.first_round, 1), f"{each.busy:.0%}", ms(each.pace),
    ]  # fmt: skip


def _details(each: Figures) -> str:
    """Returns the processes and the requests of a run as a sentence."""
    spent = ", ".join(f"{name} {seconds:.2f}" for name, seconds in each.cpu.items())
    asked = ", ".join(f"{name} {count:.3f}" for name, count in each.requests.items())
    delays = {"waited": each.waited, "started late": each.started, "took": each.took}
    times = ", ".join(f"{name} {ms(found.p50)} / {ms(found.p99)}" for name, found in delays.items())
    return f"CPU-s per 1,000: {spent}; requests each: {asked}; p50 / p99 in ms: {times}"


def number(value: float | None, digits: int) -> str:
    """Returns a number with so many digits, or a dash."""
    return _NONE if value is None else f"{value:.{digits}f}"


def ms(seconds: float | None) -> str:
    """Returns milliseconds, or a dash."""
    if seconds is None:
        return _NONE
    return "inf" if math.isinf(seconds) else f"{seconds * 1000:.0f}"


def short(each: Figures) -> str:
    """Returns the figures of a run that matter most as a sentence."""
    cpu = each.cpu[each.controller]
    return f"{each.rate:.1f} reconciles/s, {cpu:.2f} CPU-s per 1,000, first round {number(each.first_round, 1)} s"


def document(flags: Sequence[str], figures: Mapping[str, Sequence[msgspec.Struct]]) -> str:
    """Returns all figures as JSON."""
    machine = {"system": platform.platform(), "python": platform.python_version(), "cpus": os.cpu_count()}
    head = {"commit": commit(), "date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine}
    encoded = msgspec.json.encode({**head, "flags": flags, **figures})  # infinity becomes null
    return msgspec.json.format(encoded, indent=1).decode() + "\n"


def commit() -> str:
    """Returns the commit of the working tree, with a plus if it has changes; "" outside a repository."""
    done = subprocess.run(
        ("git", "describe", "--always", "--exclude=*", "--dirty=+"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()
