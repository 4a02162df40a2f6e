"""The settings that name Redis: one server, a master behind Redis Sentinel, or a cluster."""

import re
import urllib.parse
from typing import NamedTuple

import msgspec

from hpad.adapter_http import Secret, host_and_port, hosts_error, refuse, secret, secret_error, url_error
from hpad_adapters.credentials import LoginSettings, trusted_hosts_error, unused_tls_error

EXAMPLE = "redis://host:6379/0"
REDIS_PORT, SENTINEL_PORT = 6379, 26379
_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,253}\Z")
_PORT = re.compile(r"[0-9]{1,5}\Z")


class RedisAddress(NamedTuple):
    """Host and port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str, default_port: int) -> RedisAddress:
    """Parses the address of a node; raises ValueError."""
    return RedisAddress(*host_and_port(text, f"host:{default_port}", default_port))


def named(host: str, port: str | int) -> RedisAddress | None:
    """Returns the address that a server named, None if it is not one."""
    number = int(port) if isinstance(port, int) or _PORT.match(port) else 0
    return RedisAddress(host, number) if _HOST.match(host) and 0 < number < 1 << 16 else None


class Sentinel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The master that Redis Sentinel watches, asked for in each batch.

    master: its name in the configuration of the sentinels; nodes: the sentinels, "host:26379"; the first that answers
    is used, and asked first from then on.
    database: the number of the database; tls: connect to the sentinels and to the master by TLS.
    username: a user of the sentinels' own ACL; password: the sentinels' password; password_file: a file that holds it,
    read for each batch; password_env: an environment variable that holds it. Empty: the sentinels need none.
    """

    master: str
    nodes: list[str]
    database: int = 0
    tls: bool = False
    username: str = ""
    password: str = ""
    password_file: str = ""
    password_env: str = ""

    def __post_init__(self) -> None:
        refuse(
            "" if self.master else "master: is empty: it is the name after `sentinel monitor`, such as mymaster",
            hosts_error("nodes", self.nodes, f"host:{SENTINEL_PORT}", SENTINEL_PORT),
            f"database: {self.database} is not the number of a database" if self.database < 0 else "",
            secret_error(self, "password"),
            _password_error(self.username, self.secret),
        )

    def __repr__(self) -> str:
        return f"Sentinel(master={self.master!r}, nodes={self.nodes!r}, …)"

    @property
    def secret(self) -> Secret:
        """The password of the sentinels."""
        return secret(self.password, self.password_file, self.password_env)


class ClusterNodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Redis Cluster.

    nodes: some of its nodes, "host:6379", which know all others; tls: connect by TLS.
    """

    nodes: list[str]
    tls: bool = False

    def __post_init__(self) -> None:
        refuse(hosts_error("nodes", self.nodes, f"host:{REDIS_PORT}", REDIS_PORT))


class RedisServers(LoginSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields that each source on Redis has: one of url, sentinel and cluster, credentials, TLS and trust."""

    url: str = ""
    sentinel: Sentinel | None = None
    cluster: ClusterNodes | None = None
    trusted_hosts: list[str] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        present = [name for name in ("url", "sentinel", "cluster") if getattr(self, name)]
        several = f'{"".join(present[1:2]) or "url"}: give one of url ("{EXAMPLE}"), sentinel and cluster'
        wrong = _url_error(self.url) if self.url else ""
        refuse(
            "" if len(present) == 1 else several,
            f"url: {wrong}" if wrong else "",
            secret_error(self, "password"),
            _password_error(self.username, self.secret),
            self.tls_options.error,
            unused_tls_error(self, tls=self.secure, needed="rediss:// or tls: true"),
            trusted_hosts_error(self.trusted_hosts),
        )

    @property
    def secure(self) -> bool:
        """Whether connections are by TLS."""
        chosen = self.sentinel or self.cluster
        return chosen.tls if chosen is not None else self.url.startswith("rediss:")


def _password_error(username: str, password: Secret) -> str:
    missing = username and not password
    return f'password: is missing for user "{username}"; write password_file or password_env' if missing else ""


def _url_error(url: str) -> str:
    if error := url_error(url, ("redis", "rediss"), EXAMPLE, query=False):
        return error
    database = urllib.parse.urlsplit(url).path.strip("/") or "0"
    return "" if database.isdecimal() else f'the path is not the number of a database, as in "{EXAMPLE}"'
