"""Host headers that name this machine.

Without authentication on loopback, requests must name this machine in their Host header. A web page can make its own
name resolve to 127.0.0.1 and have a browser read the response (DNS rebinding); the browser then sends the foreign name.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

REFUSAL: Final = (
    "421: Misdirected Request\n"
    "This port needs no authentication, so it answers only requests for localhost, 127.0.0.1 or [::1].\n"
    "To use other names, configure authentication, for example with listen_token_file.\n"
)


def all_loopback(addresses: Iterable[str]) -> bool:
    """Returns whether all addresses belong to the loopback device."""
    return all(_is_loopback(address) for address in addresses)


def is_local(hosts: Sequence[str]) -> bool:
    """Returns whether the Host headers name loopback. A request without one does not come from a browser."""
    if len(hosts) != 1:
        return not hosts
    host = hosts[0].strip().lower()
    name = host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0].removesuffix(".")
    return name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
