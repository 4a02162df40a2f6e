"""How long the event loop of a process keeps others waiting."""

import http.client
import threading
import time
import urllib.parse
from typing import Final

from tools.bench.cluster.scraped import fetch

_PAUSE_SECONDS: Final = 0.005


def longest_wait(url: str, seconds: float) -> float:
    """Asks the process whether it lives, again and again, and returns the longest time that an answer took, in seconds.

    An answer takes next to no work, but two passes of the event loop, so a long callback delays it. The series are
    scraped once meanwhile. All this costs the process CPU time, so measure that at another time. Raises OSError and
    HTTPException.
    """
    address = urllib.parse.urlsplit(url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    longest, end = 0.0, time.monotonic() + seconds
    threading.Thread(target=fetch, args=(f"{url}/metrics",), daemon=True).start()
    while (began := time.monotonic()) < end:
        connection.request("GET", "/livez")
        connection.getresponse().read()
        longest = max(longest, time.monotonic() - began)
        time.sleep(_PAUSE_SECONDS)
    connection.close()
    return longest
