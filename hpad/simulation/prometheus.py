"""Reads a history from Prometheus by range queries, in parts that its limit of points per series allows.

The queries go through prometheus-api-client, which blocks: for commands only.
"""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import requests
import urllib3
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect

from hpad.api.text import shown
from hpad.simulation.history import HistoryError, LoadHistory

MOST_POINTS: Final = 11_000
"""Points per series that Prometheus returns for one range query (web/api/v1/api.go)."""
_TIMEOUT: Final = (5.0, 120.0)

Progress = Callable[[str, int, int], None]
"""Is told the column, how many parts of it are read, and how many there are."""


class QueriedPrometheus(NamedTuple):
    """A Prometheus server. `token_file` holds a bearer token, `ca_file` the authorities of its certificate (PEM)."""

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None


def read(
    server: QueriedPrometheus,
    queries: Mapping[str, str],
    begin: datetime,
    end: datetime,
    step: float,
    progress: Progress = lambda column, done, of: None,
) -> LoadHistory:
    """Returns the values of each column, by its PromQL expression, from `begin` to `end` every `step` seconds.

    The series of an expression are added up; where none has a value there is a gap. Raises HistoryError naming the
    column and its expression. Blocks.
    """
    count = math.floor((end - begin).total_seconds() / step) + 1
    if count < 2:
        raise HistoryError(f"from {begin:%Y-%m-%dT%H:%M:%SZ} to {end:%Y-%m-%dT%H:%M:%SZ} there is less than one step")
    times = [begin.timestamp() + index * step for index in range(count)]
    columns: dict[str, list[float | None]] = {}
    timeout: Any = _TIMEOUT  # seconds to connect, and without a byte
    with _session(server) as session:
        client = PrometheusConnect(url=server.url.rstrip("/"), session=session, timeout=timeout, retry=_ONCE)
        for column, expression in queries.items():
            columns[column] = _column(client, column, expression, times, step, progress)
    return LoadHistory(times, columns)


_ONCE: Final = urllib3.Retry(0, redirect=False)


def _session(server: QueriedPrometheus) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    if server.token_file is not None:
        try:
            session.headers["Authorization"] = f"Bearer {server.token_file.read_text(encoding='ascii').strip()}"
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "is not ASCII"
            raise HistoryError(f"{server.token_file}: cannot be read: {reason}") from None
    if server.ca_file is not None:
        if not server.ca_file.is_file():
            raise HistoryError(f"{server.ca_file}: there is no such file")
        session.verify = str(server.ca_file)
    return session


def _column(
    client: PrometheusConnect, column: str, expression: str, times: list[float], step: float, progress: Progress
) -> list[float | None]:
    parts = [times[first : first + MOST_POINTS] for first in range(0, len(times), MOST_POINTS)]
    values: list[float | None] = []
    progress(column, 0, len(parts))
    for number, part in enumerate(parts, start=1):
        found = _added(_ranged(client, column, expression, part, step), part[0], step)
        values += [found.get(index) for index in range(len(part))]
        progress(column, number, len(parts))
    if all(value is None for value in values):
        raise HistoryError(f"{column}: {shown(expression)} has no value in the whole interval")
    return values


def _ranged(client: PrometheusConnect, column: str, expression: str, part: list[float], step: float) -> Any:
    begin, end = (datetime.fromtimestamp(time, UTC) for time in (part[0], part[-1]))
    where = f"{column}: {shown(expression)}"
    try:
        return client.custom_query_range(expression, begin, end, f"{step:g}")
    except requests.exceptions.SSLError:
        raise HistoryError(f"{where}: the certificate of the server is not trusted; --prometheus-ca-file") from None
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise HistoryError(f"{where}: the server cannot be reached: {type(error).__name__}") from None
    except PrometheusApiClientException as error:
        raise HistoryError(f"{where}: the server answered: {_reason(error)}") from None
    except (KeyError, TypeError, ValueError):
        raise HistoryError(f"{where}: the server's answer is not one of Prometheus") from None


def _reason(error: Exception) -> str:
    """Returns what the library quotes of the server's answer, on one line and not too long."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:299]}…"


def _added(series: Any, begin: float, step: float) -> dict[int, float]:
    """Returns the sum of the series by the number of the step; values that are no numbers are left out."""
    found: dict[int, float] = {}
    for each in series:
        for time, text in each["values"]:
            value = float(text)
            if math.isfinite(value):
                index = round((float(time) - begin) / step)
                found[index] = found.get(index, 0.0) + value
    return found
