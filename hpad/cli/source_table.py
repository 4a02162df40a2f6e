"""The table of metric sources that `hpad sources` and `kubectl hpad sources` print."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from hpad.cli import output

COLUMNS: Final = ("NAME", "ADAPTER", "STATE", "LATENCY", "HIT-RATE", "ERROR-AGE", "LAST-ERROR")
UNHEALTHY: Final = ("broken", "failing", "open")


def cells(row: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    """Returns the cells of one source, as the API reports it."""
    latency, asked, erred = row.get("latency"), row.get("asked"), row.get("lastErrorAt")
    return (
        row["name"],
        row["adapter"],
        row["state"],
        "-" if latency is None else f"{latency * 1000:.0f}ms",
        "-" if not asked else f"{100 * row['hits'] / asked:.0f}%",
        "-" if erred is None else output.age((now - datetime.fromisoformat(erred)).total_seconds()),
        " ".join((row.get("lastError") or "-").split()),
    )
