"""The adapter `seasonal`: a floor from what the same time of the last weeks wanted.

It is one more External metric, so the largest proposal wins: it raises replicas, and never lowers them.
"""

import asyncio
import statistics
import zoneinfo
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

import msgspec

from hpad.adapter import (
    EXTERNAL,
    AdapterError,
    Answer,
    Context,
    ExternalSample,
    Query,
    or_error,
    parse_duration,
    shown,
)
from hpad.adapter_http import refuse
from hpad_adapters.prometheus import samples, template
from hpad_adapters.prometheus.connection import PrometheusConnection
from hpad_adapters.prometheus.settings import PrometheusServer
from hpad_adapters.selection import labels, no_metric

OWN_RECORDS: Final = (
    'max(hpad_hpa_metric_proposal{namespace="<<.Namespace>>",hpa_name="<<.HPA>>",metric!~"<<.Metric>>([{].*)?"})'
)
"""What the other metrics of the HPA proposed. Its recommendation holds the floor itself, which then never fell."""
_VARIABLES: Final = frozenset({"Namespace", "HPA", "Metric"})
_ZONES: Final = zoneinfo.available_timezones()  # at import: it reads files
_LONGEST_AHEAD: Final = timedelta(hours=24)
_SHORTEST_STEP: Final = timedelta(seconds=15)
_STEPS: Final = 10
_COMBINED: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "median": statistics.median,
    "max": max,
    "mean": statistics.fmean,
}


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A floor.

    query: PromQL with one value, and with the variables <<.Namespace>>, <<.HPA>> (its name) and <<.Metric>>; by default
        the largest count that the other metrics of the HPA proposed, from the series of hpad itself, for a target of
        AverageValue 1.
    weeks: how many weeks back the same time counts. Weeks without a value are left out.
    min_weeks: with fewer values the metric fails.
    ahead: the value of a week is the largest one within this time from now on, so that replicas are there before they
        are needed; 0s: the one of this moment.
    combine: median, max or mean of the weeks.
    cap: the largest value.
    """

    query: str = OWN_RECORDS
    weeks: Annotated[int, msgspec.Meta(ge=1, le=12)] = 4
    min_weeks: Annotated[int, msgspec.Meta(ge=1, le=12)] = 1
    ahead: str = "10m"
    combine: Literal["median", "max", "mean"] = "median"
    cap: Annotated[float, msgspec.Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError, for errors of the query with a line for each."""
        refuse(*(f"query: {text}" for text in template.flaws(self.query, _VARIABLES)))
        try:
            fits = timedelta(0) <= self.lead <= _LONGEST_AHEAD
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"ahead: {shown(self.ahead)} is not between 0s and 24h")
        if self.min_weeks > self.weeks:
            raise ValueError(f"min_weeks: {self.min_weeks} is more than weeks, {self.weeks}")

    @property
    def lead(self) -> timedelta:
        """`ahead` as a duration; raises ValueError."""
        return parse_duration(self.ahead)


class SeasonalSettings(PrometheusServer, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Floors from one server that speaks the HTTP API of Prometheus, and holds the samples of these weeks.

    url: where it is, such as "http://prometheus:9090", with a path if there is one, without credentials.
    metrics: name -> floor. timezone: whose clocks say what the same time is, such as "Europe/Berlin".
    username: for basic authentication; password: of the user; password_file: a file that holds it, read for each
        request; password_env: an environment variable that holds it.
    bearer_token: instead of user and password; bearer_token_file: a file that holds it, read for each request;
        bearer_token_env: an environment variable that holds it; oauth2: where to get tokens, instead of both.
    headers: sent with each request, such as {X-Scope-OrgID: tenant}; a value may be {file: …} or {env: …}.
    params: sent with each request as parameters of the URL; e.g. {dedup: "true"}.
    ca, cert, key, key_password: PEM files for TLS, loaded again when they change, and the key's password, which may be
        {file: …} or {env: …}; server_name: on the server's certificate, if not the url's; insecure: trust any
        certificate. proxy: the URL of an HTTP proxy.
    method: GET where a proxy refuses POST.
    query_timeout: how long the server may evaluate, for one week.
    max_bytes: a longer answer is refused. concurrency: the number of concurrent queries; each floor has one per week.
    """

    metrics: dict[str, Metric]
    timezone: str = "UTC"

    def errors(self) -> Iterator[str]:
        """Yields the errors in the fields."""
        yield from super().errors()
        if not self.metrics:
            yield "metrics: is empty; write a metric, such as floor: {weeks: 4}"
        if self.timezone not in _ZONES:
            yield f'timezone: there is no {shown(self.timezone)}; write something like "Europe/Berlin"'


class Seasonal:
    """A floor for replicas: the value of the same time in the last weeks, read from Prometheus."""

    serves = frozenset({EXTERNAL})
    metrics: tuple[str, ...] = ()
    Settings = SeasonalSettings

    def __init__(self, settings: SeasonalSettings, context: Context) -> None:
        self.metrics = tuple(settings.metrics)
        self._settings = settings
        self._clock = context.clock
        self._templates = {name: template.compiled(each.query, _VARIABLES) for name, each in settings.metrics.items()}
        self._connection = PrometheusConnection(settings, context)
        self._zone: zoneinfo.ZoneInfo | None = None

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a sample or an error per query; equal queries are asked once."""
        if self._zone is None:
            # In a thread, because ZoneInfo reads files.
            self._zone = await asyncio.to_thread(zoneinfo.ZoneInfo, self._settings.timezone)
        now, distinct = self._clock.now(), list(dict.fromkeys(queries))
        found = await asyncio.gather(*(or_error(self._sample, query, now) for query in distinct))
        answers = dict(zip(distinct, found, strict=True))
        return [answers[query] for query in queries]

    def personal(self, query: Query) -> bool:
        """Returns whether the query depends on the HPA's name."""
        found = self._templates.get(query.name)
        return found is not None and "HPA" in found.variables

    async def explain(self, query: Query) -> str:
        """Returns the PromQL that is asked for each week; raises AdapterError."""
        return self._expression(query)

    async def aclose(self) -> None:
        """Does nothing: hpad closes the session."""

    async def _sample(self, query: Query, now: datetime) -> ExternalSample:
        expression, metric = self._expression(query), self._settings.metrics[query.name]
        found = await asyncio.gather(*(self._week(query, expression, at) for at in self._times(metric, now)))
        values = [value for value in found if value is not None]
        if len(values) < metric.min_weeks:
            found_in = f"a value in {len(values)} of the last {metric.weeks} weeks, and needs {metric.min_weeks}"
            text = f'{self._connection.name}: metric "{query.name}" has {found_in}: {expression}'
            raise AdapterError(text, alive=True)
        value = _COMBINED[metric.combine](values)
        return ExternalSample((samples.milli(repr(min(value, metric.cap) if metric.cap else value)),), now)

    def _expression(self, query: Query) -> str:
        """Returns the PromQL for one week, evaluated at the end of the time ahead; raises AdapterError."""
        metric, compiled = self._settings.metrics.get(query.name), self._templates.get(query.name)
        if metric is None or compiled is None:
            raise no_metric(query, self.metrics)
        labels(query, ())
        if query.hpa is None and "HPA" in compiled.variables:
            raise AdapterError(f'metric "{query.name}" needs the name of the HPA', "spec")
        name = query.hpa.name if query.hpa is not None else ""
        text = compiled.render({"Namespace": query.namespace, "HPA": name, "Metric": query.name})
        if not metric.lead:
            return text
        step = max(metric.lead / _STEPS, _SHORTEST_STEP)
        return f"max_over_time(({text})[{_seconds(metric.lead)}:{_seconds(step)}])"

    def _times(self, metric: Metric, now: datetime) -> Iterator[datetime]:
        """Yields the end of the time ahead in each past week, at the same time of the clocks of the time zone."""
        here = (now + metric.lead).astimezone(self._zone)
        for weeks in range(1, metric.weeks + 1):
            yield (here - timedelta(weeks=weeks)).astimezone(UTC)

    async def _week(self, query: Query, expression: str, at: datetime) -> float | None:
        """Returns the value of one week, None without a number; raises AdapterError."""
        rows = await self._connection.query(expression, at.timestamp())
        if len(rows) > 1:
            raise AdapterError(
                f'metric "{query.name}": the query has {len(rows)} values; combine them, as with max(…): {expression}',
                "spec",
            )
        points = rows[0].points if rows else []
        return float(points[-1][1]) if points else None


def _seconds(length: timedelta) -> str:
    return f"{length // timedelta(seconds=1)}s"
