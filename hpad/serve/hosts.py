"""Which Host headers name this machine.

A web page can make its own name resolve to 127.0.0.1 and so have a browser read what listens there (DNS rebinding). The
browser still sends that name as the Host, by which the request is told from one of this machine's own.
"""

import ipaddress
from collections.abc import Iterable, Sequence


def all_loopback(addresses: Iterable[str]) -> bool:
    """Whether all these addresses are of the loopback device."""
    return all(_is_loopback(address) for address in addresses)


def is_local(hosts: Sequence[str]) -> bool:
    """Whether a request with these Host headers names loopback; one without any is no browser's."""
    return not hosts or (len(hosts) == 1 and _names_loopback(hosts[0].strip().lower()))


def _names_loopback(host: str) -> bool:
    name = host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0].removesuffix(".")
    return name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
