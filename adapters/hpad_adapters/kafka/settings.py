"""The settings of a Kafka source, and of the metrics that the operator defines on it."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from hpad.adapter import parse_duration, positive_duration, shown
from hpad.adapter_http import (
    HttpOptions,
    OAuth2,
    Secret,
    SecretRef,
    duration_error,
    host_and_port,
    hosts_error,
    refuse,
    secret_error,
)
from hpad_adapters.credentials import LoginSettings, trusted_hosts_error, unused_tls_error

Partition = tuple[str, int]
"""Topic and number."""
Policy = Literal["error", "earliest", "latest"]
Mechanism = Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
_PORT, _EXAMPLE = 9092, "kafka:9092"
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?\Z")
_MOST_PARTITIONS = 10_000


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The lag of a consumer group. A field that is empty here stands in the selector.

    group: the consumer group; topics: its topics. If neither they nor the selector name one, all topics with an offset
        that the group has committed count.
    partition_limitation: the partitions that count, such as "1,2,10-12"; empty: all.
    lag_threshold: the target of the HPA (averageValue). The value is then at most this for each partition, because
        further consumers would have none.
    allow_idle_consumers: no such limit; limit_to_partitions_with_lag: count only partitions with a lag in it.
    exclude_persistent_lag_after: a lag of a partition whose committed offset has not moved for this time does not
        count, for a consumer that fails at one message. The value does not fall below 1 by it.
    offset_reset_policy, scale_to_zero_on_invalid_offset: as for the source, for this metric.
    """

    group: str = ""
    topics: list[str] = []
    partition_limitation: str = ""
    lag_threshold: Annotated[float, msgspec.Meta(ge=0)] = 0
    allow_idle_consumers: bool = False
    limit_to_partitions_with_lag: bool = False
    exclude_persistent_lag_after: str = ""
    offset_reset_policy: Policy | None = None
    scale_to_zero_on_invalid_offset: bool | None = None

    def __post_init__(self) -> None:
        self.partitions()
        if self.partition_limitation and len(self.topics) > 1:
            raise ValueError("partition_limitation: needs a single topic")
        if self.exclude_persistent_lag_after:
            positive_duration("exclude_persistent_lag_after", self.exclude_persistent_lag_after)
        if self.limit_to_partitions_with_lag and self.allow_idle_consumers:
            raise ValueError("limit_to_partitions_with_lag: excludes allow_idle_consumers")
        if self.limit_to_partitions_with_lag and not self.lag_threshold:
            raise ValueError("limit_to_partitions_with_lag: needs the lag_threshold, which is the target of the HPA")

    @property
    def persistent_seconds(self) -> float:
        """The time after which a lag is persistent, 0 if it always counts."""
        text = self.exclude_persistent_lag_after
        return parse_duration(text).total_seconds() if text else 0.0

    def partitions(self) -> frozenset[int] | None:
        """Returns the partitions that count, None for all; raises ValueError."""
        if not self.partition_limitation:
            return None
        found: set[int] = set()
        for part in self.partition_limitation.split(","):
            match = _RANGE.match(part.strip())
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
            if not 0 <= last - first < _MOST_PARTITIONS:
                raise ValueError(
                    f'partition_limitation: {shown(self.partition_limitation)} is not of the form "1,2,10-12"'
                )
            found.update(range(first, last + 1))
            if len(found) > _MOST_PARTITIONS:
                raise ValueError(f"partition_limitation: names more than {_MOST_PARTITIONS} partitions")
        return frozenset(found)


class KafkaSettings(LoginSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One Kafka cluster.

    bootstrap_servers: some of its brokers, "host:9092"; the first that answers is used, and asked first from then on.
    request_timeout: of a connection to one broker, and of each of its answers. Keep it below half of the source's
        timeout, so that another broker is asked in place of one that hangs.
    metrics: name -> metric that the operator defines, beside kafka_lag, whose selector names group and topic.
    offset_reset_policy: what counts for a partition without a committed offset: error (the metric fails), earliest
        (all messages in it, for consumers with auto.offset.reset=earliest), or latest (1, as in KEDA, so that a first
        consumer starts and commits one). scale_to_zero_on_invalid_offset: with earliest and latest it counts 0.
    tls: connect by TLS; ca, cert, key, key_password: PEM files, loaded again when they change, and the key's password,
        which may be {file: …} or {env: …}; insecure: trust any certificate.
    sasl: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; username: the user; password: its password;
        password_file: a file that holds it, read for each batch; password_env: an environment variable that holds it.
    token_file: a file with the token of OAUTHBEARER, read for each batch; oauth2: where to get tokens.
    trusted_hosts: brokers that get a password by PLAIN, or a token, without TLS and although they are not among
        bootstrap_servers: names, "*.kafka.svc", addresses, and networks such as 10.0.0.0/8.
    """

    bootstrap_servers: list[str]
    metrics: dict[str, Metric] = msgspec.field(default_factory=dict)
    offset_reset_policy: Policy = "error"
    scale_to_zero_on_invalid_offset: bool = False
    tls: bool = False
    key_password: str | SecretRef = ""
    sasl: Mechanism = ""
    token_file: str = ""
    oauth2: OAuth2 | None = None
    trusted_hosts: list[str] = msgspec.field(default_factory=list)
    request_timeout: str = "3s"

    def __post_init__(self) -> None:
        refuse(
            self.tls_options.error,
            secret_error(self, "password"),
            self._login_error(),
            hosts_error("bootstrap_servers", self.bootstrap_servers, _EXAMPLE, _PORT),
            trusted_hosts_error(self.trusted_hosts),
            duration_error("request_timeout", self.request_timeout),
            unused_tls_error(self, tls=self.tls),
            *self._zero_errors(),
        )

    def _zero_errors(self) -> Iterator[str]:
        for name, each in self.metrics.items():
            if (
                each.scale_to_zero_on_invalid_offset
                and (each.offset_reset_policy or self.offset_reset_policy) == "error"
            ):
                text = "has an effect with offset_reset_policy: earliest or latest only"
                yield f"metrics: {name}: scale_to_zero_on_invalid_offset: {text}"

    @property
    def request_seconds(self) -> float:
        """The time for a connection to one broker, and for each of its answers, in seconds."""
        return positive_duration("request_timeout", self.request_timeout).total_seconds()

    def http_options(self) -> HttpOptions:
        """Returns the options of requests for tokens."""
        token: Secret = SecretRef(file=self.token_file) if self.token_file else ""
        return HttpOptions(bearer_token=token, oauth2=self.oauth2, tls=self.tls_options)

    def servers(self) -> list[tuple[str, int]]:
        """Returns host and port of each bootstrap server."""
        return [host_and_port(server, _EXAMPLE, _PORT) for server in self.bootstrap_servers]

    def _login_error(self) -> str:
        by_token, by_password = bool(self.token_file or self.oauth2), bool(self.secret or self.username)
        if self.sasl == "OAUTHBEARER":
            if bool(self.token_file) == bool(self.oauth2):
                return "sasl: OAUTHBEARER needs one of token_file and oauth2"
            return "username: has no effect with OAUTHBEARER" if by_password else ""
        if self.sasl and not (self.username and self.secret):
            return f"sasl: {self.sasl} needs username and one of password, password_file and password_env"
        if by_token:
            return "token_file, oauth2: have an effect with sasl: OAUTHBEARER only"
        return "username: has an effect with sasl only" if by_password and not self.sasl else ""
