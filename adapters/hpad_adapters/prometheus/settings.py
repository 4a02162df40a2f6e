"""What the operator says about a Prometheus server, and about the queries that answer metrics."""

import urllib.parse
from datetime import timedelta
from typing import Any, Literal

import msgspec

from hpad.adapter import SOURCE_TYPES, parse_duration

Reduce = Literal["error", "sum", "max", "min", "avg"]
Empty = Literal["missing", "zero"]


class Elsewhere(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value kept out of the configuration: the content of a file (read again when it changed), or a variable."""

    file: str = ""
    env: str = ""

    def __post_init__(self) -> None:
        if bool(self.file) == bool(self.env):
            raise ValueError("give one of file and env")


class TLS(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PEM files: `ca` to trust instead of the system's, `cert` and `key` to show; `insecure`: trust any certificate."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.key and not self.cert:
            raise ValueError("key: there is a key, but no cert for it")


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reduce the samples of a time span to one value, here rather than in PromQL.

    The samples of the last `fetch` are asked for; those of the `last` span that ends at the newest of them count. With
    the defaults: of the last 5 minutes, the average over the minute that ends at the newest sample. `step` asks for a
    subquery of that resolution, which any expression but a plain selector needs.
    """

    fetch: str = "5m"
    last: str = "1m"
    reduce: Literal["avg", "sum", "max", "min", "newest"] = "avg"
    step: str = ""

    def __post_init__(self) -> None:
        if self.span <= timedelta(0) or self.span > parse_duration(self.fetch):
            raise ValueError(f"last: {self.last!r} is not a duration above zero and within fetch ({self.fetch!r})")
        if self.step and parse_duration(self.step) <= timedelta(0):
            raise ValueError(f"step: {self.step!r} is not a duration above zero")

    @property
    def span(self) -> timedelta:
        """`last` as a duration."""
        return parse_duration(self.last)


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query of one's own for a metric.

    query: PromQL with variables between << and >>: .Namespace, .Metric, .LabelMatchers (the metric's selector),
        index .Labels "queue" (a value of that selector), .PodMatchers (the selector of the target's pods, each label
        prefixed with `pod_labels`), .Object and .Kind (of the described object), .Container, .GroupBy (the labels that
        the answer is told apart by).
    types: which metrics it answers; empty: Resource and ContainerResource for cpu and memory, else the other three.
    pod, container, object: the labels of the answer that name the pod, the container, the described object (empty: the
        query itself names the object).
    empty: an answer without values is missing, or zero.
    reduce: how several values become one, for an Object metric and for each pod; error refuses to guess. For External
        metrics all values count, their sum is the controller's to take.
    span: the time that a value stands for, as metrics APIs report it.
    """

    query: str
    types: list[str] = []
    pod: str = "pod"
    container: str = "container"
    object: str = ""
    pod_labels: str = "label_"
    empty: Empty = "missing"
    reduce: Reduce = "error"
    window: Window | None = None
    span: str = "1m"

    def __post_init__(self) -> None:
        parse_duration(self.span)
        for kind in self.types:
            if kind not in SOURCE_TYPES:
                raise ValueError(f"types: {kind!r} is not one of {', '.join(SOURCE_TYPES)}")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One server that speaks the HTTP API of Prometheus (Thanos, Mimir, VictoriaMetrics, …).

    url: where it is, such as "http://prometheus:9090", with a path if there is one, without credentials.
    metrics: name -> query of one's own.
    rules: the content of a prometheus-adapter configuration (rules, externalRules, resourceRules);
    rules_file: the file that holds it. Queries of one's own come first. resourceRules answer where a `match` or a
        route sends cpu and memory here; other metrics come unasked, as far as no source before this one answers them.
    rules_empty, rules_reduce, rules_window: what `empty`, `reduce`, `window` are to a query, for all rules.
    username and password, or bearer_token: text, {file: …} or {env: …}.
    headers: sent with each request, values like those; e.g. {X-Scope-OrgID: tenant}.
    params: sent with each request as parameters of the URL; e.g. {dedup: "true"}.
    method: GET where a proxy lets no POST through.
    query_timeout: how long the server may evaluate. An answer that is not there a second later is given up, so that a
        slow query spoils its own metrics alone; keep it below the source's timeout.
    max_bytes: a longer answer is refused.
    discovery_ttl: how long the names of series are remembered, for rules whose `name` cannot be read backwards.
    concurrency: queries at a time.
    """

    url: str
    metrics: dict[str, Metric] = {}
    rules: dict[str, Any] = {}
    rules_file: str = ""
    rules_empty: Empty = "missing"
    rules_reduce: Reduce = "error"
    rules_window: Window | None = None
    username: str = ""
    password: str | Elsewhere = ""
    bearer_token: str | Elsewhere = ""
    headers: dict[str, str | Elsewhere] = {}
    params: dict[str, str] = {}
    tls: TLS = TLS()
    method: Literal["POST", "GET"] = "POST"
    query_timeout: str = "5s"
    max_bytes: int = 16 << 20
    discovery_ttl: str = "10m"
    concurrency: int = 8

    def __post_init__(self) -> None:
        _check_url(self.url)
        if bool(self.username) != bool(self.password):
            raise ValueError("username and password go together")
        if self.username and self.bearer_token:
            raise ValueError("give username and password, or bearer_token, not both")
        if self.rules and self.rules_file:
            raise ValueError("give rules or rules_file, not both")
        if self.concurrency < 1 or self.max_bytes < 1:
            raise ValueError("concurrency and max_bytes are numbers of 1 or more")
        for field in ("query_timeout", "discovery_ttl"):
            if parse_duration(getattr(self, field)) <= timedelta(0):
                raise ValueError(f"{field}: {getattr(self, field)!r} is not a duration above zero")

    def __repr__(self) -> str:
        return f"Settings(url={self.url!r}, …)"


def _check_url(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("url: leave credentials out of it; write username and password: {file: …}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f'url: {url!r} is not of the form "http://prometheus:9090"')
    if parts.query or parts.fragment:
        raise ValueError("url: write parameters under params")
