"""What the operator says about a broker."""

import urllib.parse
from datetime import timedelta
from typing import Literal

import msgspec

from hpad.adapter import parse_duration, shown
from hpad_adapters.rabbitmq.modes import COUNTS, Metric, OnMissing, OnStalled, compiled

Reader = Literal["management", "prometheus", "amqp"]

_SCHEMES: dict[str, tuple[str, ...]] = {
    "management": ("http", "https"),
    "prometheus": ("http", "https"),
    "amqp": ("amqp", "amqps"),
}
_EXAMPLES = {
    "management": "http://rabbitmq:15672",
    "prometheus": "http://rabbitmq:15692",
    "amqp": "amqp://rabbitmq:5672",
}
_OFFERED = {"prometheus": COUNTS | {"consumers"}, "amqp": frozenset({"ready", "consumers"})}
_LONGEST_RATE_WINDOW = timedelta(minutes=10)  # what a broker keeps at its finest resolution unless told otherwise
_SAMPLE_SPACING = timedelta(seconds=5)
_MOST_PER_PAGE = 500  # RabbitMQ refuses more


class Elsewhere(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that is kept elsewhere.

    file: whose content it is, read again each time; env: the variable that holds it.
    """

    file: str = ""
    env: str = ""

    def __post_init__(self) -> None:
        if bool(self.file) == bool(self.env):
            raise ValueError("give one of file and env")


class OAuth2(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Tokens by the client credentials grant (RFC 6749, section 4.4).

    token_url: of the identity provider; client_id: who hpad is there; client_secret: its secret; client_secret_file: a
        file that holds it; client_secret_env: a variable with it.
    scopes, params: what else the provider wants to know, such as {audience: rabbitmq}.
    client_auth: how the client shows who it is: basic (a header), or body (fields of the form).
    """

    token_url: str
    client_id: str
    client_secret: str = ""
    client_secret_file: str = ""
    client_secret_env: str = ""
    scopes: list[str] = []
    params: dict[str, str] = {}
    client_auth: Literal["basic", "body"] = "basic"

    def __post_init__(self) -> None:
        _check_url("token_url", self.token_url, ("http", "https"), "https://login.example.com/oauth/token")
        if sum(map(bool, (self.client_secret, self.client_secret_file, self.client_secret_env))) != 1:
            raise ValueError("client_secret: give one of client_secret, client_secret_file and client_secret_env")

    def __repr__(self) -> str:
        return f"OAuth2(token_url={self.token_url!r}, client_id={self.client_id!r}, …)"

    @property
    def secret(self) -> str | Elsewhere:
        """The client's secret, wherever it is."""
        return _kept(self.client_secret, self.client_secret_file, self.client_secret_env)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One broker, or one cluster of brokers.

    url: where the source answers, such as "http://rabbitmq:15672", without credentials; of a list, the first that gives
        an answer is taken, and asked first from then on. With source prometheus: of a cluster, the addresses of all
        nodes, which are asked all, as each tells of the queues alone that it leads.
    source: management (the management API: everything), prometheus (/metrics/detailed of rabbitmq_prometheus, port
        15692: counts and consumers, one cheap request a vhost), or amqp (a passive declaration of each queue: ready and
        consumers; needs the extra `hpad[amqp]`). In clusters management is the one to take: of a quorum queue without a
        leader prometheus says nothing, which after half a minute means that there is none, and amqp that it is empty.
    metrics: name -> metric of the operator's own, beside queue_messages, queue_messages_ready and
        queue_messages_unacknowledged, whose selector says which queue.
    username: a user with the tag "monitoring" and a permission on the vhosts, for which "^$" "^$" "^$" suffices.
    password: of the user; password_file: a file that holds it, read again each time; password_env: a variable with it.
    bearer_token_file: a file with a token, instead of user and password; oauth2: where to get tokens, instead of both.
    vhost: of queries that name none.
    vhosts, queues: what a metric's selector may say -> the real name, for names that label values cannot hold ("a/b").
    only_vhosts, only_queues: the selector may name those of vhosts, queues alone.
    patterns: what a metric's selector may say as queue_regex -> the regular expression; none: it may not.
    page_size, max_queues: of a list. More queues than that are an error, never a part of them.
    on_missing_queue: a queue that does not exist, or a pattern without a match, is an error, so that replicas are held
        or a fallback stands in, or zero. A field that the broker does not give is an error in any case.
    on_stalled: what rates and drain_time are while messages wait and none is delivered: no answer, so that nothing is
        scaled down ("hold"), or a value that scales up ("up": as if the backlog came in each second; drain_time as if
        one message was delivered a rate_window).
    rate_window: what a rate is the average of, 5s to 10m; smoothing: the weight of its newest five seconds (0 to 1) in
        a moving average with weights that fade, 0 for a plain average.
    headers: sent with each request; a value may be {file: …} or {env: …}.
    ca, cert, key, key_password: PEM files for TLS, read again when they change, and the key's password, which may be
        {file: …} or {env: …}; server_name: on the broker's certificate, if not the url's; insecure: trust any one.
    request_timeout, connect_timeout: of one request to one node, such as "5s".
    """

    url: str | list[str]
    source: Reader = "management"
    metrics: dict[str, Metric] = {}
    username: str = ""
    password: str = ""
    password_file: str = ""
    password_env: str = ""
    bearer_token_file: str = ""
    oauth2: OAuth2 | None = None
    vhost: str = "/"
    vhosts: dict[str, str] = {}
    queues: dict[str, str] = {}
    only_vhosts: bool = False
    only_queues: bool = False
    patterns: dict[str, str] = {}
    page_size: int = _MOST_PER_PAGE
    max_queues: int = 10_000
    on_missing_queue: OnMissing = "error"
    on_stalled: OnStalled = "hold"
    rate_window: str = "60s"
    smoothing: float = 0.0
    headers: dict[str, str | Elsewhere] = {}
    ca: str = ""
    cert: str = ""
    key: str = ""
    key_password: str | Elsewhere = ""
    server_name: str = ""
    insecure: bool = False
    request_timeout: str = "5s"
    connect_timeout: str = "2s"

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError("url: the list is empty; write where the source answers")
        for url in self.nodes:
            _check_url("url", url, _SCHEMES[self.source], _EXAMPLES[self.source])
        self._check_credentials()
        self._check_numbers()
        if self.key and not self.cert:
            raise ValueError("key: there is a key, but no cert for it")
        texts = [(name, value if isinstance(value, str) else "") for name, value in self.headers.items()]
        if any(character in text for pair in texts for text in pair for character in "\r\n\0"):
            raise ValueError("headers: a line break cannot be part of a header")
        for name, pattern in self.patterns.items():
            compiled(f"patterns: {name}", pattern)
        for name, metric in self.metrics.items():
            if metric.mode is not None and not self.offers(metric.mode):
                raise ValueError(f"metrics: {name}: mode: source {self.source} does not know {metric.mode}")

    def __repr__(self) -> str:
        return f"Settings(url={self.url!r}, username={self.username!r}, …)"

    @property
    def nodes(self) -> tuple[str, ...]:
        """The URLs without a trailing slash."""
        urls = [self.url] if isinstance(self.url, str) else self.url
        return tuple(url.rstrip("/") for url in urls)

    @property
    def timeout(self) -> timedelta:
        """Of one request; raises ValueError."""
        return parse_duration(self.request_timeout)

    @property
    def rate_span(self) -> timedelta:
        """What a rate is the average of."""
        return parse_duration(self.rate_window)

    @property
    def secret(self) -> str | Elsewhere:
        """The user's password, wherever it is."""
        return _kept(self.password, self.password_file, self.password_env)

    def offers(self, mode: str) -> bool:
        """Whether the source knows such numbers."""
        return self.source not in _OFFERED or mode in _OFFERED[self.source]

    def _check_credentials(self) -> None:
        given = [name for name in ("password", "password_file", "password_env") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"{given[1]}: {' and '.join(given)} are given; one of them is enough")
        if given and not self.username:
            raise ValueError(f"username: is missing, but {given[0]} is given")
        if self.username and not given:
            raise ValueError(f'password: is missing for user "{self.username}"; write password_file or password_env')
        if ":" in self.username:
            raise ValueError("username: a user name with a colon cannot be sent to the management API")
        if sum(map(bool, (self.username, self.bearer_token_file, self.oauth2))) > 1:
            raise ValueError("username: give a user with a password, or bearer_token_file, or oauth2, not two of them")

    def _check_numbers(self) -> None:
        for field in ("request_timeout", "connect_timeout"):
            if parse_duration(getattr(self, field)) <= timedelta(0):
                raise ValueError(f"{field}: {shown(getattr(self, field))} is not a duration above zero")
        if not _SAMPLE_SPACING <= self.rate_span <= _LONGEST_RATE_WINDOW:
            raise ValueError(f"rate_window: {shown(self.rate_window)} is not between 5s and 10m")
        if not 0 <= self.smoothing <= 1:
            raise ValueError(f"smoothing: {shown(self.smoothing)} is not a number from 0 to 1")
        if not 1 <= self.page_size <= _MOST_PER_PAGE or self.max_queues < 1:
            raise ValueError(f"page_size and max_queues are 1 or more, and a page has {_MOST_PER_PAGE} queues at most")


def _kept(value: str, file: str, env: str) -> str | Elsewhere:
    return Elsewhere(file=file, env=env) if file or env else value


def _check_url(field: str, url: str, schemes: tuple[str, ...], example: str) -> None:
    """The text of a URL that may hold a password is never part of the message."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f'{field}: not a URL; write something like "{example}"') from None
    if "@" in parts.netloc:
        raise ValueError(f"{field}: carries a user name or password; write them as username and password_file instead")
    if parts.scheme in ("amqp", "amqps") and parts.scheme not in schemes:
        raise ValueError(f'{field}: is for AMQP; the management API is needed, such as "{example}", or source: amqp')
    if parts.scheme not in schemes or not host:
        wanted = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ValueError(f'{field}: must begin with {wanted} and name a host, such as "{example}"')
    if parts.query or parts.fragment:
        raise ValueError(f"{field}: ends in a query or fragment; write scheme, host, port and path alone")
    if "amqp" in schemes and parts.path.strip("/"):
        raise ValueError(f"{field}: ends in a path; write the vhost as vhost")
