"""The settings of a Prometheus source, and of the queries that the operator writes for metrics."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from hpad.adapter import EXTERNAL, SOURCE_TYPES, parse_duration, positive_duration, shown
from hpad.adapter_http import HttpLoginSettings, duration_error, refuse, url_error
from hpad_adapters.prometheus import template

Reduce = Literal["error", "sum", "max", "min", "avg"]
Empty = Literal["missing", "zero"]
OF_THE_HPA = frozenset({"HPA", "HPALabels", "Target", "TargetKind"})
OF_THE_OBJECT = frozenset({"Object", "Kind"})
OF_THE_PODS = frozenset({"PodMatchers", "Container"})
VARIABLES = (
    OF_THE_OBJECT
    | OF_THE_PODS
    | OF_THE_HPA
    | {"Namespace", "Metric", "LabelMatchers", "Labels", "LabelValuesByName", "GroupBy"}
)
"""The variables of a query that the operator writes."""
OWN_VARIABLES = OF_THE_HPA | {"Namespace", "LabelMatchers", "Labels"}
"""The variables of a query that an Autoscaler brings along."""


class QueryWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reduces the samples of a time span to one value, in hpad rather than in PromQL.

    The samples of the last `fetch` are fetched; those of the `last` span that ends at the newest of them count. With
    the defaults: of the last 5 minutes, the average over the minute that ends at the newest sample. `step` makes a
    subquery of that resolution, which any expression but a plain selector needs. The value has the time of the newest
    sample, so that its age can be judged (without a window Prometheus reports samples up to 5 minutes old as current).

    fetch: how far back samples are fetched. last: the span, up to the newest sample, whose samples count.
    reduce: how they become one value. step: the resolution of a subquery.
    """

    fetch: str = "5m"
    last: str = "1m"
    reduce: Literal["avg", "sum", "max", "min", "newest"] = "avg"
    step: str = ""

    def __post_init__(self) -> None:
        if positive_duration("last", self.last) > positive_duration("fetch", self.fetch):
            raise ValueError(f"last: {shown(self.last)} is not within fetch ({shown(self.fetch)})")
        if self.step:
            positive_duration("step", self.step)

    @property
    def span(self) -> timedelta:
        """`last` as a duration."""
        return parse_duration(self.last)


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query that the operator writes for a metric.

    query: PromQL with variables between << and >>: .Namespace, .Metric, .LabelMatchers (the metric's selector),
        index .Labels "queue" (a value of that selector), .PodMatchers (the selector of the target's pods, each label
        prefixed with `pod_labels`), .Object and .Kind (of the described object), .Container, .HPA (its name), .Target
        and .TargetKind (what it scales), index .HPALabels "team" (a label of the HPA), .GroupBy (the labels that
        distinguish the values of several HPAs). One request serves many HPAs where each series has .LabelMatchers
        and each aggregation .GroupBy: sum(depth{<<.LabelMatchers>>}) by (<<.GroupBy>>).
    types: which metrics it answers; empty: Resource and ContainerResource for cpu and memory, else the other three.
    pod, container, object: the labels of the answer that name the pod, the container, the described object (empty: the
        query itself names the object).
    empty: an answer without values is missing, or zero.
    reduce: how several values become one, for an Object metric and for each pod; with error, several values are an
        error. For External metrics all values count: the controller adds them up.
    pod_labels: the prefix of a pod's label in the name of a series' label.
    window: reduces the samples of a time span to one value, in hpad rather than in PromQL.
    span: the time that a value covers, as metrics APIs report it.
    """

    query: str
    types: list[str] = []
    pod: str = "pod"
    container: str = "container"
    object: str = ""
    pod_labels: str = "label_"
    empty: Empty = "missing"
    reduce: Reduce = "error"
    window: QueryWindow | None = None
    span: str = "1m"

    def __post_init__(self) -> None:
        """Raises ValueError, for errors of the query with a line for each."""
        refuse(*(f"query: {text}" for text in template.flaws(self.query, VARIABLES)))
        try:
            below_zero = parse_duration(self.span) < timedelta(0)
        except ValueError as error:
            raise ValueError(f"span: {error}") from None
        if below_zero:
            raise ValueError(f"span: {shown(self.span)} is below zero")
        for kind in self.types:
            if kind not in SOURCE_TYPES:
                raise ValueError(f"types: {shown(kind)} is not one of {', '.join(SOURCE_TYPES)}")
        if self.types == [EXTERNAL] and self.reduce in ("max", "min", "avg"):
            text = f"the values of an External metric are added up; write {self.reduce}(…) in the query"
            raise ValueError(f"reduce: {text}")


class OwnPromQL(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query that an Autoscaler brings along. All values of its answer count, added up.

    query: PromQL with variables between << and >>: .Namespace, .LabelMatchers (the metric's selector), index .Labels
        "queue" (a value of that selector), .HPA (the Autoscaler's name), .Target and .TargetKind (what it scales),
        index .HPALabels "team" (a label of the Autoscaler).
    empty: an answer without values is missing, or zero.
    window: reduces the samples of a time span to one value, in hpad rather than in PromQL.
    """

    query: Annotated[str, msgspec.Meta(max_length=4096)]
    empty: Empty = "missing"
    window: QueryWindow | None = None

    def __post_init__(self) -> None:
        """Raises ValueError with a line for each error."""
        refuse(*(f"query: {text}" for text in template.flaws(self.query, OWN_VARIABLES)))

    @property
    def as_metric(self) -> Metric:
        """The same as a metric of the configuration."""
        return Metric(query=self.query, types=[EXTERNAL], empty=self.empty, window=self.window)


class PrometheusServer(HttpLoginSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields that each source on such a server has: its address, credentials, TLS and limits."""

    timeout_field: ClassVar[str] = "query_timeout"
    renamed: ClassVar[Mapping[str, str]] = {"tls": "ca, cert, key, server_name and insecure"}

    url: str
    params: dict[str, str] = msgspec.field(default_factory=dict)
    method: Literal["POST", "GET"] = "POST"
    query_timeout: str = "5s"
    concurrency: Annotated[int, msgspec.Meta(ge=1)] = 8

    def errors(self) -> Iterator[str]:
        """Yields the errors in the fields."""
        yield from _url_errors(self.url)
        yield from super().errors()


def _url_errors(url: str) -> Iterator[str]:
    if error := url_error(url, ("http", "https"), "http://prometheus:9090"):
        yield f"url: {error}"
    elif "?" in url or "#" in url:
        yield "url: write parameters under params"


class Settings(PrometheusServer, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One server that speaks the HTTP API of Prometheus (Thanos, Mimir, VictoriaMetrics, …).

    url: where it is, such as "http://prometheus:9090", with a path if there is one, without credentials.
    metrics: name -> query that the operator writes.
    rules: the content of a prometheus-adapter configuration (rules, externalRules, resourceRules);
    rules_file: the file that holds it, read again when it changes. Queries under `metrics` come first. resourceRules
        answer where a `match` or a route sends cpu and memory here; other metrics need no route, unless a source before
        this one answers them.
    rules_empty, rules_reduce, rules_window: `empty`, `reduce` and `window` of all rules. With rules_empty: zero a
        metric is unknown all the same, as for prometheus-adapter, if its series has to be looked up (see discovery_ttl)
        and had no sample for that long.
    username: for basic authentication; password: of the user; password_file: a file that holds it, read for each
        request; password_env: an environment variable that holds it.
    bearer_token: instead of user and password; bearer_token_file: a file that holds it, read for each request;
        bearer_token_env: an environment variable that holds it; oauth2: where to get tokens, instead of both.
    headers: sent with each request, such as {X-Scope-OrgID: tenant}; a value may be {file: …} or {env: …}.
    params: sent with each request as parameters of the URL; e.g. {dedup: "true"}. Thanos answers in part, with a
        warning, while a store is down: {partial_response: "false"} makes that an error.
    ca, cert, key, key_password: PEM files for TLS, loaded again when they change, and the key's password, which may be
        {file: …} or {env: …}; server_name: on the server's certificate, if not the url's; insecure: trust any
        certificate. proxy: the URL of an HTTP proxy.
    method: GET where a proxy refuses POST.
    query_timeout: how long the server may evaluate. A query without an answer a second later fails, so that a slow
        query fails its own metrics only; so does one that gets no call in time. Keep it below the source's timeout.
    max_bytes: a longer answer is refused.
    discovery_ttl: how long the names of series are cached, for rules whose seriesQuery names no single series, and for
        metrics that several rules may make.
    concurrency: the number of concurrent queries.
    """

    metrics: dict[str, Metric] = msgspec.field(default_factory=dict)
    rules: dict[str, Any] = msgspec.field(default_factory=dict)
    rules_file: str = ""
    rules_empty: Empty = "missing"
    rules_reduce: Reduce = "error"
    rules_window: QueryWindow | None = None
    discovery_ttl: str = "10m"

    def errors(self) -> Iterator[str]:
        """Yields the errors in the fields."""
        yield from super().errors()
        if self.rules and self.rules_file:
            yield "give rules or rules_file, not both"
        of_rules = {"rules_empty": "missing", "rules_reduce": "error", "rules_window": None}
        for name, default in of_rules.items():
            if getattr(self, name) != default and not (self.rules or self.rules_file):
                yield f"{name}: has an effect with rules or rules_file only"
        yield duration_error("discovery_ttl", self.discovery_ttl)
