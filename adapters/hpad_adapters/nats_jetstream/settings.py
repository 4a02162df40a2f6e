"""The settings of a NATS JetStream source, and of the metrics that the operator defines."""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from hpad.adapter_http import HttpSettings, url_error, url_list

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
