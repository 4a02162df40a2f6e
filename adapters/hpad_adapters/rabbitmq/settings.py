"""What the operator says about a broker."""

import urllib.parse
from datetime import timedelta

import msgspec

from hpad.adapter import parse_duration


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One broker, or one cluster of brokers.

    url: where the management API answers, such as "http://rabbitmq:15672", without credentials; of a list, the first
        that gives an answer is taken.
    username, and one of password, password_file (read again for each request) and password_env (a variable's name): the
        user needs the tag "monitoring" and a permission on the vhosts, for which "^$" "^$" "^$" suffices.
    vhost: of queries that name none.
    vhosts, queues: what a metric's selector may say -> the real name, for names that label values cannot hold ("a/b").
    headers: sent with each request.
    ca, cert, key: PEM files for TLS; insecure: trust any certificate.
    request_timeout: of one request, such as "5s".
    """

    url: str | list[str]
    username: str = ""
    password: str = ""
    password_file: str = ""
    password_env: str = ""
    vhost: str = "/"
    vhosts: dict[str, str] = {}
    queues: dict[str, str] = {}
    headers: dict[str, str] = {}
    ca: str = ""
    cert: str = ""
    key: str = ""
    insecure: bool = False
    request_timeout: str = "5s"

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError("url: the list is empty; write where the management API answers")
        for url in self.nodes:
            _check_url(url)
        self._check_credentials()
        if self.key and not self.cert:
            raise ValueError("key: there is a key, but no cert for it")
        if any(character in text for pair in self.headers.items() for text in pair for character in "\r\n\0"):
            raise ValueError("headers: a line break cannot be part of a header")
        if self.timeout <= timedelta(0):
            raise ValueError(f"request_timeout: {self.request_timeout!r} is not a duration above zero")

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


def _check_url(url: str) -> None:
    """The text of a URL that may hold a password is never part of the message."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError('url: not a URL; write something like "http://rabbitmq:15672"') from None
    if "@" in parts.netloc:
        raise ValueError("url: carries a user name or password; write them as username and password_file instead")
    if parts.scheme in ("amqp", "amqps"):
        raise ValueError('url: is for AMQP; the management API is needed, such as "http://rabbitmq:15672"')
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError('url: must begin with http:// or https:// and name a host, such as "http://rabbitmq:15672"')
    if parts.query or parts.fragment:
        raise ValueError("url: ends in a query or fragment; write scheme, host, port and path alone")
