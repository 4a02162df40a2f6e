"""External metrics: how far a consumer of JetStream is behind, and how many messages a stream holds."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Query
from hpad.adapter_http import Http, HttpSettings, url_error, url_list
from hpad_adapters.nats_jetstream.servers import (
    HEADLESS,
    NatsConsumer,
    NatsServers,
    NatsStream,
    Reply,
    consumers,
    of_leader,
    streams,
)
from hpad_adapters.selection import attempt, labels, no_metric

Value = Literal["lag", "pending", "ack_pending", "messages"]
NAMES: Final[dict[str, Value]] = {
    "nats_consumer_lag": "lag",
    "nats_consumer_pending": "pending",
    "nats_consumer_ack_pending": "ack_pending",
    "nats_stream_messages": "messages",
}
_EXAMPLE: Final = "http://nats-headless:8222"


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A metric that the operator defines, whose names no selector needs to give.

    stream, consumer: their names. account: its name or id; by default that of the source.
    value: lag: messages that the consumer has yet to get, and those it has not acknowledged; pending, ack_pending: one
        of the two; messages: those in the stream, without a consumer.
    """

    stream: str
    consumer: str = ""
    account: str = ""
    value: Value = "lag"

    def __post_init__(self) -> None:
        if not self.stream:
            raise ValueError("stream: is empty")
        if bool(self.consumer) == (self.value == "messages"):
            needed = "has no consumer" if self.consumer else "needs a consumer"
            raise ValueError(f"consumer: the value {self.value} {needed}")


class NatsSettings(HttpSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One NATS server, or one cluster of servers.

    url: the monitoring endpoint, such as "http://nats-headless:8222", or a list with that of each server. A name that
        resolves to several addresses, as that of a headless Service does, stands for all of them. Only the leader of a
        consumer knows its numbers, so every server has to be among them.
    account: whose streams they are; "$G" is that of servers without accounts.
    metrics: name -> metric that the operator defines, beside nats_consumer_lag, nats_consumer_pending,
        nats_consumer_ack_pending ("stream=…,consumer=…") and nats_stream_messages ("stream=…"), whose selector may have
        account=… as well.
    headers: sent with each request; a value may be {file: …} or {env: …}.
    ca, cert, key, key_password: PEM files for TLS, loaded again when they change, and the key's password, which may be
        {file: …} or {env: …}; server_name: on the servers' certificate, if not the url's; insecure: trust any
        certificate.
    proxy: the URL of an HTTP proxy. max_bytes: a longer answer is refused; it holds all consumers of an account.
    request_timeout: of one request to one server, such as "5s".
    """

    url: str | list[str]
    account: str = "$G"
    metrics: dict[str, Metric] = msgspec.field(default_factory=dict)
    request_timeout: str = "5s"

    def errors(self) -> Iterator[str]:
        """Yields the errors in the fields."""
        if not self.servers:
            yield "url: the list is empty; write the monitoring endpoint of each server"
        for url in self.servers:
            if error := url_error(url, ("http", "https"), _EXAMPLE, query=False):
                yield f"url: {error}"
        for name in self.metrics:
            if name in NAMES:
                yield f"metrics: {name}: is a metric of the adapter; choose another name"
        yield from super().errors()

    @property
    def servers(self) -> tuple[str, ...]:
        """The URLs without a trailing slash."""
        return url_list(self.url)


_MOST: Final = (2**63 - 1) // 1000
"""The largest count whose thousandths fit into 64 bits."""

Replies = Sequence[Reply | AdapterError]


class NatsJetStream:
    """Messages of NATS JetStream: lag, pending and unacknowledged ones of a consumer, or all of a stream.

    The selector names them: `stream=…,consumer=…`, and `account=…` if it is another than the source's. The state of all
    consumers of an account comes from one request to each server of the cluster.
    """

    serves = frozenset({EXTERNAL})
    metrics: tuple[str, ...] = tuple(NAMES)
    parameters = ("stream", "consumer", "account")
    Settings = NatsSettings
    QuerySchema = Metric

    def __init__(self, settings: NatsSettings, context: Context) -> None:
        self.metrics = (*NAMES, *settings.metrics)
        self._settings = settings
        self._clock = context.clock
        self._servers = NatsServers(settings.servers, Http(context, settings.http_options()), settings.server_name)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a sample or an error per query; each account is read once."""
        wanted = [attempt(self._wanted, query) for query in queries]
        accounts = list(dict.fromkeys(each.account for each in wanted if isinstance(each, Metric)))
        replies = dict(zip(accounts, await asyncio.gather(*map(self._servers.replies, accounts)), strict=True))
        return [each if isinstance(each, AdapterError) else self._sample(each, replies) for each in wanted]

    def group(self, query: Query) -> str | None:
        """Returns the account: one request to each server serves all its consumers."""
        wanted = attempt(self._wanted, query)
        return None if isinstance(wanted, AdapterError) else wanted.account

    async def aclose(self) -> None:
        """Does nothing: hpad closes the session."""

    def _wanted(self, query: Query) -> Metric:
        """Returns what a query asks for, with its account; raises AdapterError."""
        own = query.definition
        metric: Metric | None = self._settings.metrics.get(query.name) if own is None else own.metric
        if metric is not None:
            labels(query, ())
        elif query.name in NAMES:
            value = NAMES[query.name]
            needed = ("stream",) if value == "messages" else ("stream", "consumer")
            metric = Metric(**labels(query, needed, ("account",)), value=value)
        else:
            raise no_metric(query, self.metrics)
        return msgspec.structs.replace(metric, account=metric.account or self._settings.account)

    def _sample(self, wanted: Metric, replies: Mapping[str, Replies]) -> Answer:
        """Returns the number that the leader reports, or why there is none."""
        answered = [reply for reply in replies[wanted.account] if isinstance(reply, Reply)]
        errors = [error for error in replies[wanted.account] if isinstance(error, AdapterError)]
        if not answered:
            return errors[0]
        of_stream = list(streams(answered, wanted.stream))
        found: dict[str, NatsStream | NatsConsumer] = {}
        found.update(consumers(of_stream, wanted.consumer) if wanted.consumer else of_stream)
        if not found:
            return _absent(wanted, answered, errors, has_stream=bool(of_stream))
        state, leader = of_leader(found)
        if state is None:
            # During an election the others still name the former leader, which answers that it leads no more.
            has_answered = leader in {reply.server for reply in answered}
            return _without_leader(wanted, "" if has_answered else leader, errors)
        count = _count(wanted, state)
        if not 0 <= count <= _MOST:
            return AdapterError(f"NATS: {_described(wanted)} has {count} messages, which is not a count", alive=True)
        return ExternalSample((count * 1000,), self._clock.now())


def _count(wanted: Metric, state: NatsStream | NatsConsumer) -> int:
    if isinstance(state, NatsStream):
        return state.state.messages
    counts = {"pending": state.num_pending, "ack_pending": state.num_ack_pending}
    return counts.get(wanted.value, state.num_pending + state.num_ack_pending)


def _absent(
    wanted: Metric, answered: Sequence[Reply], errors: Sequence[AdapterError], *, has_stream: bool
) -> AdapterError:
    """Returns the error of a stream or consumer that no server reports."""
    if errors:
        return AdapterError(f"no server that answers knows {_described(wanted)}; {errors[0].message}", alive=True)
    if all(reply.disabled for reply in answered):
        return AdapterError(f"JetStream is not enabled on NATS server {answered[0].server}", alive=True)
    if long := next((reply.server for reply in answered if reply.more), ""):
        text = f'NATS server {long} does not list all of its accounts: write the id of account "{wanted.account}"'
        return AdapterError(text, alive=True)
    if has_stream:
        missing = f'stream "{wanted.stream}" has no consumer "{wanted.consumer}"'
    elif any(reply.account is not None for reply in answered):
        missing = f'account "{wanted.account}" has no stream "{wanted.stream}"'
    else:
        missing = f'there is no account "{wanted.account}" with JetStream'
    size, asked = max(reply.size for reply in answered), len({reply.server for reply in answered})
    if size > asked:
        return AdapterError(f"NATS: {missing} on {asked} of {size} servers: {HEADLESS}", alive=True)
    return AdapterError(f"NATS: {missing}", "spec")


def _without_leader(wanted: Metric, leader: str, errors: Sequence[AdapterError]) -> AdapterError:
    if not leader:
        return AdapterError(f"NATS: {_described(wanted)} has no leader at present", alive=True)
    why = errors[0].message if errors else f"it is none of the servers of url: {HEADLESS}"
    return AdapterError(f"NATS server {leader}, the leader of {_described(wanted)}, did not answer: {why}", alive=True)


def _described(wanted: Metric) -> str:
    stream = f'stream "{wanted.stream}" of account "{wanted.account}"'
    return f'consumer "{wanted.consumer}" of {stream}' if wanted.consumer else stream
