"""Reads values from Prometheus by range queries, in parts that its limit of points per series allows.

The queries go through prometheus-api-client, which blocks: for commands only. Answers are read up to a bound, and
decoded here: a week of one series in steps of a minute has 10,000 values, and a cluster has thousands of series.
"""

import enum
import math
import operator
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
import requests
import urllib3
from prometheus_api_client.prometheus_connect import PrometheusConnect

from hpad import files
from hpad.api.secrets import Secrets
from hpad.api.text import begin as shortened
from hpad.api.text import harmless, shown
from hpad.simulation.history import HistoryError, LoadHistory

MOST_POINTS: Final = 11_000
"""Points per series that Prometheus returns for one range query (web/api/v1/api.go)."""
MOST_BYTES: Final = 64 << 20
"""The longest answer that is read, uncompressed: about three million values."""
MOST_PLACES: Final = 50_000_000
"""Series times points of one answer: a series with a single value takes as much memory as a whole one."""
_CHUNK: Final = 1 << 20
_LARGEST_TOKEN: Final = 1 << 20
"""Bytes."""
_LONGEST_IN_URL: Final = 2_000
"""Characters of a query: proxies bound the length of a URL."""
_TIMEOUT: Final = (5.0, 120.0)


class QueryFailure(enum.Enum):
    """Why a query has no answer, as far as it matters for what to do next."""

    REFUSED = enum.auto()
    """The same query would be refused again."""
    TOO_LARGE = enum.auto()
    """A shorter time may be answered."""
    TRANSIENT = enum.auto()
    """The same query may be answered later."""


class QueryError(HistoryError):
    """A query without an answer; the message does not name the query."""

    def __init__(self, failure: QueryFailure, text: str) -> None:
        super().__init__(text)
        self.failure = failure


class TimeGrid(NamedTuple):
    """Times of values: the first one in seconds since 1970, the seconds between two, and their number."""

    begin: float
    step: float
    points: int

    @classmethod
    def between(cls, begin: datetime, end: datetime, step: float) -> "TimeGrid":
        """Returns the times from `begin` to `end`. Raises HistoryError if there is less than one step."""
        count = math.floor((end - begin).total_seconds() / step) + 1
        if count < 2:
            raise HistoryError(
                f"from {begin:%Y-%m-%dT%H:%M:%SZ} to {end:%Y-%m-%dT%H:%M:%SZ} there is less than one step"
            )
        return cls(
            float(round(begin.timestamp())), float(step), count
        )  # the library rounds the begin to whole seconds, too

    @property
    def end(self) -> float:
        """The last time."""
        return self.begin + (self.points - 1) * self.step

    @property
    def times(self) -> list[float]:
        return [self.begin + index * self.step for index in range(self.points)]

    def parts(self, most: int) -> "list[TimeGrid]":
        """Returns the times in parts of at most so many."""
        starts = range(0, self.points, most)
        return [TimeGrid(self.begin + at * self.step, self.step, min(most, self.points - at)) for at in starts]


class FoundSeries(NamedTuple):
    """One series of an answer: a value for each time of the grid, None in a gap."""

    labels: Mapping[str, str]
    values: Sequence[float | None]


def combined(series: Sequence[FoundSeries], points: int, both: Callable[[float, float], float]) -> list[float | None]:
    """Returns one column of the series for `points` times; `both` makes one of two values. None: none has a value."""
    column: list[float | None] = [None] * points
    for each in series:
        column = [
            value if before is None else before if value is None else both(before, value)
            for before, value in zip(column, each.values, strict=True)
        ]
    return column


Progress = Callable[[str, int, int], None]
"""Is told the column, how many parts of it are read, and how many there are."""


class QueriedPrometheus(NamedTuple):
    """A Prometheus server. `token_file` holds a bearer token, `ca_file` the authorities of its certificate (PEM)."""

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None


class PrometheusClient:
    """Asks one server. Not for several threads at once; `connected` makes it, and closes it."""

    def __init__(self, server: QueriedPrometheus, session: requests.Session) -> None:
        timeout: Any = _TIMEOUT  # seconds to connect, and without a byte
        self._client = PrometheusConnect(url=server.url.rstrip("/"), session=session, timeout=timeout, retry=_ONCE)

    def ranged(self, expression: str, grid: TimeGrid) -> list[FoundSeries]:
        """Returns the series of an expression; at most MOST_POINTS times. Raises QueryError."""
        begin, end = (datetime.fromtimestamp(time, UTC) for time in (grid.begin, grid.end))
        with _named_errors():
            found = self._client.custom_query_range(expression, begin, end, f"{grid.step:.10g}")
            if len(found) * grid.points > MOST_PLACES:
                text = f"the answer has {len(found):,} series, too many for {grid.points:,} times"
                raise QueryError(QueryFailure.TOO_LARGE, text)
            return [FoundSeries(each.metric, _on_grid(each.values, grid)) for each in found]


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
    grid = TimeGrid.between(begin, end, step)
    columns: dict[str, list[float | None]] = {}
    with connected(server) as client:
        for column, expression in queries.items():
            columns[column] = _column(client, column, expression, grid, progress)
    return LoadHistory(grid.times, columns)


def _column(
    client: PrometheusClient, column: str, expression: str, grid: TimeGrid, progress: Progress
) -> list[float | None]:
    parts = grid.parts(MOST_POINTS)
    values: list[float | None] = []
    progress(column, 0, len(parts))
    for number, part in enumerate(parts, start=1):
        try:
            values += combined(client.ranged(expression, part), part.points, operator.add)
        except QueryError as error:
            raise HistoryError(f"{column}: {shown(expression)}: {error}") from None
        progress(column, number, len(parts))
    if all(value is None for value in values):
        raise HistoryError(f"{column}: {shown(expression)} has no value in the whole interval")
    return values


_ONCE: Final = urllib3.Retry(0, redirect=False)


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    values: msgspec.Raw = msgspec.Raw(b"[]")


class _Data(msgspec.Struct):
    result: list[_Series]


class _Body(msgspec.Struct):
    data: _Data


_BODY: Final = msgspec.json.Decoder(_Body)
_PAIRS: Final = msgspec.json.Decoder(list[tuple[float, float]], strict=False)
"""Not strict: the values of Prometheus are text."""


class _Answer(NamedTuple):
    """What prometheus-api-client asks of a response."""

    status_code: int
    content: bytes

    def json(self) -> dict[str, Any]:
        return {"data": {"result": _BODY.decode(self.content).data.result}}


class _Session(requests.Session):
    """Reads answers up to MOST_BYTES, and raises QueryError for a status of an error. Posts long queries.

    `token` is hidden where an error quotes it.
    """

    token = ""

    def request(  # type: ignore[override]  # as prometheus-api-client calls it
        self, method: str, url: str, params: Mapping[str, str], **kwargs: Any
    ) -> Any:
        kwargs |= {"params": params, "stream": True}
        if len(params["query"]) > _LONGEST_IN_URL:
            method = "POST"
            kwargs |= {"params": None, "data": params}
        with super().request(method, url, **kwargs) as response:
            content = _bounded(response)
            if response.status_code != HTTPStatus.OK:
                raise _refusal(response.status_code, content, Secrets([self.token]))
            return _Answer(response.status_code, content)


def _bounded(response: requests.Response) -> bytes:
    content = bytearray()
    for chunk in response.iter_content(_CHUNK):
        content += chunk
        if len(content) > MOST_BYTES:
            raise QueryError(QueryFailure.TOO_LARGE, f"the answer has more than {MOST_BYTES >> 20} MiB")
    return bytes(content)


_STATUS_TOO_LARGE: Final = "too many samples"
"""Part of the error of a query above --query.max-samples (promql/engine.go: ErrTooManySamples)."""


_LONGEST_READ: Final = 4096
"""Characters of a refusal."""


def _refusal(status: int, content: bytes, secrets: Secrets) -> QueryError:
    text = content.decode("utf-8", "replace")
    with suppress(msgspec.DecodeError, KeyError, TypeError):
        text = str(msgspec.json.decode(content)["error"])
    failure = QueryFailure.REFUSED
    if status == HTTPStatus.UNPROCESSABLE_ENTITY and _STATUS_TOO_LARGE in text:
        failure = QueryFailure.TOO_LARGE
    elif status >= 500 or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS):
        failure = QueryFailure.TRANSIENT
    what = shortened(harmless(secrets.hidden(" ".join(text[:_LONGEST_READ].split()))), 300)
    return QueryError(failure, f"the server answered: {status}{f' {what}' if what else ''}")


@contextmanager
def connected(server: QueriedPrometheus) -> Iterator[PrometheusClient]:
    """Yields a client with the token and the authorities of the server. Raises HistoryError for their files."""
    with _Session() as session:
        session.trust_env = False
        if _is_near(server.url):  # to compress costs Prometheus more than to calculate
            session.headers["Accept-Encoding"] = "identity"
        if server.token_file is not None:
            session.token = _token(server.token_file)
            session.headers["Authorization"] = f"Bearer {session.token}"
        if server.ca_file is not None:
            try:
                ssl.create_default_context(cafile=str(server.ca_file))
            except OSError as error:
                raise HistoryError(f"{server.ca_file}: has no certificate authorities: {error.strerror}") from None
            session.verify = str(server.ca_file)
        yield PrometheusClient(server, session)


def _token(file: Path) -> str:
    try:
        words = files.content(file, _LARGEST_TOKEN).decode("ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not ASCII"
        raise HistoryError(f"{file}: cannot be read: {reason}") from None
    if len(words) != 1:
        raise HistoryError(f"{file}: has {len(words)} words, and a token is one")
    return words[0]


def _is_near(url: str) -> bool:
    with suppress(ValueError):
        return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    return False


@contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except QueryError:
        raise
    except requests.exceptions.SSLError as error:
        text = f"no TLS connection: {_reason(error)}"
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error)):
            text = "the certificate of the server is not trusted; --prometheus-ca-file"
        raise QueryError(QueryFailure.REFUSED, text) from None
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema):
        raise QueryError(QueryFailure.REFUSED, "the URL is not one such as http://localhost:9090") from None
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise QueryError(QueryFailure.TRANSIENT, f"the server cannot be reached: {_reason(error)}") from None
    except (KeyError, TypeError, ValueError):
        raise QueryError(QueryFailure.TRANSIENT, "the server's answer is not one of Prometheus") from None


def _reason(error: BaseException) -> str:
    """Returns what the system says of a failed connection ("Connection refused"), else the class of the error."""
    found = (cause.strerror for cause in _causes(error) if isinstance(cause, OSError) and cause.strerror)
    return next(found, type(error).__name__)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error, its cause, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _on_grid(values: msgspec.Raw, grid: TimeGrid) -> list[float | None]:
    """Returns the values at the times of the grid; those that are no numbers are gaps."""
    pairs = _pairs(values)
    if len(pairs) == grid.points and pairs[0][0] == grid.begin:
        return [value if math.isfinite(value) else None for _, value in pairs]
    found: list[float | None] = [None] * grid.points
    for time, value in pairs:
        index = round((time - grid.begin) / grid.step)
        if 0 <= index < grid.points and math.isfinite(value):
            found[index] = value
    return found


def _pairs(values: msgspec.Raw) -> list[tuple[float, float]]:
    try:
        return _PAIRS.decode(values)
    except msgspec.ValidationError:  # "+Inf", and what is no number
        return [pair for each in msgspec.json.decode(values) if (pair := _pair(each)) is not None]


def _pair(value: Any) -> tuple[float, float] | None:
    match value:
        case [int() | float() as time, str() as text]:
            with suppress(ValueError):
                return float(time), float(text)
    return None
