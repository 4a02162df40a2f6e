"""Which hosts are this machine. A token is sent to them also without TLS, as it does not cross a network."""

import contextlib
import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host, without brackets, is this machine by its name or address; no resolver is asked."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    return host == "localhost"


def names_loopback(url: str) -> bool:
    """Whether the host of a URL, or of `//HOST:PORT`, is this machine."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def is_in_clear(url: str) -> bool:
    """Whether what is sent to a URL leaves this machine without TLS."""
    return urlsplit(url).scheme == "http" and not names_loopback(url)
