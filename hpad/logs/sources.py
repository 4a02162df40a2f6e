"""Stacks are told with the source of their lines. Python keeps every file that it has read a line of (`linecache`), for
good: a few stacks take megabytes, and nobody looks at them a second time.
"""

import linecache
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# One at a time: whoever reads lines while the files are let go of would stumble. Whatever is formatted may be
# interrupted by a finalizer that logs, too: that one leaves them to the other.
_lock = threading.RLock()
_readers = 0


@contextmanager
def lent() -> Iterator[None]:
    """Format stacks and tracebacks in here: what was read for them is let go of."""
    global _readers
    with _lock:
        _readers += 1
        try:
            yield
        finally:
            _readers -= 1
            if not _readers:
                linecache.clearcache()
