"""What was measured of storms as a table."""

from collections.abc import Sequence

from tools.bench.cluster.report import aligned, ms, number
from tools.bench.cluster.storm import Storm

_HEADS = (
    ("HPAs", ""), ("storm", ""), ("recovered", "s"), ("late p50", "ms"), ("late p99", "ms"), ("late max", "ms"),
    ("gap", "s"), ("busy stretch", "ms"), ("stall", "ms"), ("busiest", "req/s"), ("events", "of it"),
    ("before", "req/s"),
    ("peak", "MiB"), ("most", "MiB"), ("after", "MiB"), ("before", "MiB"),
    ("lists", "ns, period"), ("logged", ""), ("claims", ""),
)  # fmt: skip


def table(found: Sequence[Storm]) -> str:
    """Returns aligned rows, one for each storm, and below the busiest second and the log of each."""
    lines = aligned(_HEADS, [_row(each) for each in found])
    details = [f"{each.name} at {each.hpas:,}: {_details(each)}" for each in found]
    return "\n".join(["storms: what hpad does when much happens at once", "", *lines, "", *details])


def _row(each: Storm) -> list[str]:
    broken = [name for name, held in each.claims().items() if not held]
    return [
        f"{each.hpas:,}", each.name, number(each.recovered, 1), ms(each.late.p50), ms(each.late.p99),
        ms(each.late.most), number(each.gap, 1), ms(each.stretch), ms(each.stall), f"{each.requests}",
        f"{each.events}", f"{each.busiest_before}", f"{each.peak:.0f}", f"{each.most:.0f}", f"{each.after:.0f}",
        f"{each.before:.0f}", f"{each.lists:.2f}", f"{sum(each.logged.values())}",
        f"NOT {', '.join(broken)}" if broken else "held",
    ]  # fmt: skip


def _details(each: Storm) -> str:
    asked = ", ".join(f"{name} {count}" for name, count in each.busiest.items())
    lines = ", ".join(f"{count} x {text}" for text, count in each.logged.items())
    return f"busiest second: {asked or 'nothing'}; log: {lines or 'nothing'}"
