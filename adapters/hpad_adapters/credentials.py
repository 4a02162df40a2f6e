"""Credentials of a source: the settings that name them, and the servers that may get them.

Servers may name others: nodes of a cluster, masters, brokers. A server that proves its name by TLS may get the
credentials, and so may those that the configuration names. Without TLS, an attacker that answers in place of one server
could name any address as another one, and would get the credentials there.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final

from hpad.adapter import AdapterError, shown
from hpad.adapter_http import Secret, TlsSettings, secret

_NAME: Final = re.compile(r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})\Z")
_OF_TLS: Final = ("ca", "cert", "key_password", "server_name", "insecure")
_FORMS: Final = 'names, "*.example.com", addresses, and networks such as 10.0.0.0/8'


def trusted_hosts_error(hosts: Sequence[str]) -> str:
    """Returns why the setting `trusted_hosts` is invalid, as "field: text"; "" if it is not."""
    wrong = next((host for host in hosts if _network(host) is None and not _NAME.match(host)), None)
    return "" if wrong is None else f"trusted_hosts: {shown(wrong)} is none of: {_FORMS}"


def unused_tls_error(settings: TlsSettings, *, tls: bool, needed: str = "tls: true") -> str:
    """Returns the error of a field of TLS that is set although `tls` is false, as "field: text"; "" if none is.

    `needed`: what would make it true.
    """
    unused = next((name for name in _OF_TLS if getattr(settings, name, "")), "")
    return f"{unused}: has an effect with {needed} only" if unused and not tls else ""


class LoginSettings(TlsSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields of a user name, its password, and TLS. Subclasses describe them."""

    username: str = ""
    password: str = ""
    password_file: str = ""
    password_env: str = ""

    @property
    def secret(self) -> Secret:
        """The password."""
        return secret(self.password, self.password_file, self.password_env)


class Trust:
    """Decides whether a server may get the credentials. `configured` has host and port of the servers in the settings.

    `verified`: connections are by TLS, and certificates are checked.
    """

    def __init__(self, configured: Iterable[tuple[str, int]], hosts: Sequence[str], *, verified: bool) -> None:
        self._verified = verified
        self._configured = {(_plain(host), port) for host, port in configured}
        self._networks = [network for host in hosts if (network := _network(host)) is not None]
        self._names = [_plain(host) for host in hosts if _network(host) is None]

    def check(self, kind: str, host: str, port: int) -> None:
        """Raises AdapterError unless the server, of a kind such as "Redis", may get the credentials."""
        name = _plain(host)
        if self._verified or (name, port) in self._configured or self._listed(name):
            return
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise AdapterError(
            f"{kind} {at} gets no credentials: another server named it, not the configuration, and no certificate"
            f" proves its name. Use TLS, or write it into trusted_hosts, as one of: {_FORMS}",
            lasting=True,
        )

    def _listed(self, name: str) -> bool:
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return any(name == each or (each[:1] == "*" and name.endswith(each[1:])) for each in self._names)
        return any(address in network for network in self._networks)


def _network(host: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Returns the network of the text, which may be a single address; None for a name."""
    try:
        return ipaddress.ip_network(host)
    except ValueError:
        return None


def _plain(host: str) -> str:
    return host.lower().removesuffix(".")
