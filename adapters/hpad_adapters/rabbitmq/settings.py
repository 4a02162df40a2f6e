"""The settings of a RabbitMQ source."""

import urllib.parse
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

import msgspec

from hpad.adapter import parse_duration, positive_duration, shown
from hpad.adapter_http import HttpLoginSettings, HttpOptions, url_error, url_list
from hpad_adapters.rabbitmq.metric import MODES, Metric, NoOffset, OnMissing, OnStalled, compiled

Reader = Literal["management", "amqp", "prometheus", "auto"]

_HTTP = ("http", "https")
_PLUGIN = "http://rabbitmq:15692"
_SCHEMES: dict[str, tuple[str, ...]] = {"amqp": ("amqp", "amqps")}
_EXAMPLES = {"amqp": "amqp://rabbitmq:5672", "prometheus": _PLUGIN}
_MANAGEMENT = "http://rabbitmq:15672"
_STREAMS = "rabbitmq-stream://rabbitmq:5552"
_VHOST = "write the vhost as vhost"
_MODES_OF: dict[str, frozenset[str]] = {
    "amqp": frozenset({"ready", "consumers"}),
    "prometheus": frozenset(MODES) - {"head_age"},
}
"""The modes of sources that do not have all."""
STREAM_SCHEMES = ("rabbitmq-stream", "rabbitmq-stream+tls")
_LONGEST_RATE_WINDOW = timedelta(minutes=10)  # by default a broker keeps its finest resolution so long
_SAMPLE_SPACING = timedelta(seconds=5)
_MOST_PER_PAGE = 500  # RabbitMQ refuses more


class Settings(HttpLoginSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One broker, or one cluster of brokers.

    url: the address of the source, such as "http://rabbitmq:15672", without credentials; of a list, the first node that
        answers is used, and asked first from then on.
    source: management (the management API with its statistics: all metrics); auto (the management API, and for what it
        does not count because its statistics are off, the plugin rabbitmq_prometheus at metrics_url); prometheus (that
        plugin alone, whose addresses are the url: one for each node of the cluster, since a node knows its own numbers
        only; all metrics but head_age, counts up to five seconds old, and x-single-active-consumer is not seen); amqp
        (a passive declaration of each queue: ready and consumers only; needs the extra `amqp`; of a quorum queue
        without a leader AMQP reports that it is empty).
    metrics_url: for auto: the address of the plugin on each node, such as ["http://rabbitmq-0:15692", …]: not that of a
        load balancer. They get the same user as the management API.
    metrics: name -> metric that the operator defines, beside queue_messages, queue_messages_ready,
        queue_messages_unacknowledged, queue_workers_to_clear, queue_time_to_clear, queue_growth and queue_head_age,
        whose selector names the queue, and stream_lag and stream_workers_to_clear, whose selector names stream and
        group.
    stream_url: the address of the plugin rabbitmq_stream, such as "rabbitmq-stream://rabbitmq:5552", or
        "rabbitmq-stream+tls://rabbitmq:5551", for metrics of streams; of a cluster a list with one address per node,
        because the leader of each stream is asked. The user needs the permission to read the stream.
    offset_reset_policy: what counts for a stream in which the group has stored no offset, or one whose message was
        removed since: error (the metric fails), earliest (all messages in it, for consumers that begin with the first),
        or latest (1, so that a first consumer starts and stores one).
    username: a user with the tag "monitoring" and a permission on the vhosts, for which "^$" "^$" "^$" suffices;
        by AMQP without the tag, and from RabbitMQ 4.2.6 on with a permission on each queue (docs/rabbitmq.md).
    password: of the user; password_file: a file that holds it, read for each request; password_env: an environment
        variable that holds it.
    bearer_token: instead of a user; bearer_token_file: a file that holds it, read for each request; bearer_token_env:
        an environment variable that holds it; oauth2: where to get tokens, instead of both.
    vhost: of queries that name none.
    vhosts, queues: the name in a metric's selector -> the real name, for names that label values cannot hold ("a/b").
    only_vhosts, only_queues: selectors may name the keys of vhosts, queues only.
    patterns: the name in a metric's selector (queue_regex) -> the regular expression; empty: selectors name none.
    page_size, max_queues: of a list. More queues than max_queues are an error, because a part would be a wrong number.
    on_missing_queue: a queue that does not exist, or a pattern without a match, is an error, so that replicas are held
        or a fallback applies, or zero. A field that the broker does not report is an error in any case.
    on_stalled: the value of drain_time and of rates that are 0 while messages wait and none is delivered: no value, so
        that nothing is scaled down ("hold"), or a value that scales up ("up": as if the backlog came in each second;
        drain_time as if one message was delivered per rate_window).
    rate_window: the time over which a rate is averaged, 5s to 10m; smoothing: the weight of the newest five seconds
        (0 to 1) in an exponential moving average, 0 for a plain average.
    headers: sent with each request; a value may be {file: …} or {env: …}.
    ca, cert, key, key_password: PEM files for TLS, loaded again when they change, and the key's password, which may be
        {file: …} or {env: …}; server_name: on the broker's certificate, if not the url's; insecure: trust any
        certificate.
    proxy: the URL of an HTTP proxy. max_bytes: a longer answer is refused.
    request_timeout, connect_timeout: of one request to one node, such as "5s".
    """

    url: str | list[str]
    source: Reader = "management"
    metrics_url: str | list[str] = msgspec.field(default_factory=list)
    stream_url: str | list[str] = ""
    metrics: dict[str, Metric] = msgspec.field(default_factory=dict)
    vhost: str = "/"
    vhosts: dict[str, str] = msgspec.field(default_factory=dict)
    queues: dict[str, str] = msgspec.field(default_factory=dict)
    only_vhosts: bool = False
    only_queues: bool = False
    patterns: dict[str, str] = msgspec.field(default_factory=dict)
    page_size: Annotated[int, msgspec.Meta(ge=1, le=_MOST_PER_PAGE)] = _MOST_PER_PAGE
    max_queues: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    on_missing_queue: OnMissing = "error"
    on_stalled: OnStalled = "hold"
    offset_reset_policy: NoOffset = "error"
    rate_window: str = "60s"
    smoothing: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 32 << 20
    request_timeout: str = "5s"
    connect_timeout: str = "2s"

    def errors(self) -> Iterator[str]:
        """Yields the errors in the fields."""
        if not self.nodes:
            yield "url: the list is empty; write the address of the source"
        yield from filter(None, (_url_error(url, self.source) for url in self.nodes))
        for url in self.stream_nodes:
            if error := url_error(url, STREAM_SCHEMES, _STREAMS, instead_of_path=_VHOST):
                yield f"stream_url: {error}"
        yield from self._plugin_errors()
        yield from super().errors()
        yield from self._rate_errors()
        yield from self._stream_errors()
        for name, pattern in self.patterns.items():
            try:
                compiled(f"patterns: {name}", pattern)
            except ValueError as error:
                yield str(error)
        for name, metric in self.metrics.items():
            if metric.mode is not None and not metric.of_stream and not self.offers(metric.mode):
                yield f"metrics: {name}: mode: source {self.source} has no {metric.mode}"

    def _stream_errors(self) -> Iterator[str]:
        """Yields the errors in what is about streams, where there is no server of them."""
        if self.stream_nodes:
            return
        if self.offset_reset_policy != "error":
            yield "offset_reset_policy: has an effect with stream_url only"
        for name, each in self.metrics.items():
            if each.of_stream:
                yield f'metrics: {name}: stream: needs stream_url, such as "{_STREAMS}"'

    def _plugin_errors(self) -> Iterator[str]:
        addresses = url_list(self.metrics_url)
        if self.source != "auto":
            if addresses:
                yield f"metrics_url: belongs to source: auto, and this is source: {self.source}"
            return
        if not addresses:
            yield f'metrics_url: is missing; write the address of the plugin on each node, such as "{_PLUGIN}"'
        for url in addresses:
            if error := url_error(url, _HTTP, _PLUGIN, query=False) or _behind(url):
                yield f"metrics_url: {error}"

    def _rate_errors(self) -> Iterator[str]:
        try:
            fits = _SAMPLE_SPACING <= self.rate_span <= _LONGEST_RATE_WINDOW
        except ValueError:
            fits = False
        if not fits:
            yield f"rate_window: {shown(self.rate_window)} is not between 5s and 10m"

    @property
    def nodes(self) -> tuple[str, ...]:
        """The URLs without a trailing slash."""
        return url_list(self.url)

    @property
    def plugin_nodes(self) -> tuple[str, ...]:
        """The URLs of the plugin on each node, () for sources that do not ask it."""
        return self.nodes if self.source == "prometheus" else url_list(self.metrics_url)

    @property
    def stream_nodes(self) -> tuple[str, ...]:
        """The addresses of the plugin rabbitmq_stream; () for none."""
        return url_list(self.stream_url)

    @property
    def rate_span(self) -> timedelta:
        """The time over which a rate is averaged."""
        return parse_duration(self.rate_window)

    def offers(self, mode: str) -> bool:
        """Returns whether the source has values of this mode."""
        return self.source not in _MODES_OF or mode in _MODES_OF[self.source]

    def http_options(self, timeout: float = 0.0) -> HttpOptions:
        """Returns the options of requests; raises ValueError."""
        options = super().http_options(timeout)
        connect = positive_duration("connect_timeout", self.connect_timeout).total_seconds()
        return msgspec.structs.replace(options, connect_timeout=connect)


def _url_error(url: str, source: str) -> str:
    """Returns why a URL is not the address of a broker for this source, as "field: text"; "" if it is."""
    example = _EXAMPLES.get(source, _MANAGEMENT)
    if url.startswith(("amqp:", "amqps:")) and source in ("management", "auto"):
        return f'url: an AMQP address; write that of the management API, such as "{example}", or source: amqp'
    no_path = _VHOST if source == "amqp" else ""
    error = url_error(url, _SCHEMES.get(source, _HTTP), example, query=False, instead_of_path=no_path) or _behind(url)
    return f"url: {error}" if error else ""


def _behind(url: str) -> str:
    """Returns the error of a URL that names the page of metrics in place of the server, "" for any other."""
    return "ends in /metrics; leave that out" if urllib.parse.urlsplit(url).path.endswith("/metrics") else ""
