"""Detects code that blocks the event loop, by the functions that it calls and not by the time they take.

A profile function (`sys.setprofile`) sees each call in the thread of the loop, including calls of C functions. Threads
of `asyncio.to_thread` have no profile function. So the result is the same on a fast, a slow and a busy machine.
"""

import asyncio
import io
import os
import socket
import sqlite3
import ssl
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Final

CALLS_AT_ONCE: Final = 1_000_000
"""Most function calls in one step of the loop: they take some tenths of a second on any machine."""

_THREAD = "await asyncio.to_thread(…)"
_STREAMS = "use context.http, or the streams of asyncio"
_SUBPROCESS = "use asyncio.create_subprocess_exec"
_FUNCTIONS: Final[dict[Callable[..., Any], tuple[str, str]]] = {
    time.sleep: ("time.sleep", "await context.clock.sleep(…)"),
    io.open: ("open", _THREAD),
    os.listdir: ("os.listdir", _THREAD),
    os.scandir: ("os.scandir", _THREAD),
    os.system: ("os.system", _SUBPROCESS),
    sqlite3.connect: ("sqlite3.connect", _THREAD),
    socket.gethostbyname: ("socket.gethostbyname", "use loop.getaddrinfo"),
    socket.gethostbyname_ex: ("socket.gethostbyname_ex", "use loop.getaddrinfo"),
    socket.gethostbyaddr: ("socket.gethostbyaddr", "use loop.getaddrinfo"),
}
_PYTHON: Final[dict[CodeType, tuple[str, str]]] = {
    socket.getaddrinfo.__code__: ("socket.getaddrinfo", "use loop.getaddrinfo"),
    subprocess.run.__code__: ("subprocess.run", _SUBPROCESS),
    subprocess.call.__code__: ("subprocess.call", _SUBPROCESS),
    subprocess.Popen.wait.__code__: ("subprocess.Popen.wait", _SUBPROCESS),
    subprocess.Popen.communicate.__code__: ("subprocess.Popen.communicate", _SUBPROCESS),
    threading.Condition.wait.__code__: ("threading.Condition.wait", _THREAD),
    threading.Thread.join.__code__: ("threading.Thread.join", _THREAD),
}
_SOCKET_METHODS: Final = frozenset(
    ("accept", "connect", "connect_ex", "recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "send", "sendall")
)
_SQLITE_METHODS: Final = frozenset(
    ("execute", "executemany", "executescript", "fetchone", "fetchmany", "fetchall", "commit")
)
_TLS_METHODS: Final = frozenset(("load_cert_chain", "load_verify_locations", "set_default_verify_paths"))
_NAMES: Final = frozenset((*(each.__name__ for each in _FUNCTIONS), *_SOCKET_METHODS, *_SQLITE_METHODS, *_TLS_METHODS))
"""The names of all functions in C that may block."""
_START: Final = threading.Thread.start.__code__
"""It waits until the new thread is scheduled, also for the executor of asyncio, which is harmless."""
_STEP: Final = asyncio.Handle._run.__code__
_RUN: Final = asyncio.Runner.run.__code__
_READS_SOURCES: Final = ("linecache.py", "tokenize.py")
"""Files of the standard library that read source lines for a traceback."""
_IMPORTS: Final = "<frozen importlib"
_STANDARD: Final = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
_INSTALLED: Final = tuple(sysconfig.get_paths()[name] for name in ("purelib", "platlib"))
_THIS_PACKAGE: Final = os.path.dirname(__file__) + os.sep


class Blocked(Exception):
    """The event loop is blocked; the message names the place, the call, and its replacement."""


@contextmanager
def watched(own: type) -> Iterator[None]:
    """Raises Blocked at the end if code inside the `with` block blocked the event loop of this thread.

    An exception replaces the blocking call, so that the check itself is quick. The message names the line in the
    package of the class `own` that led to the call, if there is one.
    """
    watch, before = _Watch(_home(own)), sys.getprofile()
    sys.setprofile(watch.function())
    try:
        yield
    except Exception:
        # The checked code may have turned Blocked into an error of its own; Blocked is raised below.
        if watch.found is None:
            raise
    finally:
        sys.setprofile(before)
    if watch.found is not None:
        raise Blocked(watch.found)


class _Watch:
    """Its `function` is the profile function; `found` describes the first blocking call, by lines of `home` first."""

    def __init__(self, home: str) -> None:
        self.found: str | None = None
        self._home = home

    def function(self) -> Callable[[FrameType, str, Any], None]:
        """Returns the profile function, which runs at every call: a closure is the fastest."""
        calls = 0

        def seen(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal calls
            if event == "c_call":
                calls += 1
                if getattr(argument, "__name__", "") in _NAMES:
                    self._check(_FUNCTIONS.get(argument) or _method(argument), frame)
            elif event == "call":
                code, caller = frame.f_code, frame.f_back
                # A step of the loop begins: asyncio runs a handle, or uvloop calls a function directly.
                begins = code is _STEP or caller is None or caller.f_code is _RUN
                calls = 0 if begins else calls + 1
                if code in _PYTHON and frame.f_locals.get("timeout") != 0:  # a timeout of 0 does not wait
                    self._check(_PYTHON[code], caller)
            else:
                return
            if calls > CALLS_AT_ONCE:
                calls = 0
                self._report(f"more than {CALLS_AT_ONCE:,} calls without an await", _THREAD, frame)

        return seen

    def _check(self, known: tuple[str, str] | None, caller: FrameType | None) -> None:
        if known is not None and caller is not None and not _harmless(caller):
            self._report(known[0], known[1], caller)

    def _report(self, what: str, instead: str, frame: FrameType) -> None:
        place = self._place(frame)
        if place is None:  # the event loop itself
            return
        message = f"{place} blocks the event loop: {what}; {instead} instead"
        self.found = self.found or message
        raise Blocked(message)

    def _place(self, frame: FrameType) -> str | None:
        """Returns the nearest line in `home`, else in another package; None if all are in the standard library."""
        outside = [each for each in _stack(frame) if _is_outside(each.f_code.co_filename)]
        named = [each for each in outside if each.f_code.co_filename.startswith(self._home)]
        for each in named or outside:
            return f"{each.f_code.co_qualname} ({each.f_code.co_filename}:{each.f_lineno})"
        return None


def _is_outside(file: str) -> bool:
    """Returns whether a file is not part of the standard library, whose folder may contain installed packages."""
    return file.startswith(_INSTALLED) or not file.startswith((*_STANDARD, "<frozen"))


def _home(own: type) -> str:
    """Returns the folder of the class's package, or the file of its module."""
    module = sys.modules[own.__module__]
    package = sys.modules.get(module.__name__.partition(".")[0])
    file = getattr(package, "__file__", None) or getattr(module, "__file__", None) or ""
    return os.path.dirname(file) + os.sep if os.path.basename(file) == "__init__.py" else file


def _stack(frame: FrameType) -> Iterator[FrameType]:
    """Yields the frame and its callers in this step of the loop, without those of this package."""
    found: FrameType | None = frame
    while found is not None and found.f_code is not _STEP:
        if not found.f_code.co_filename.startswith(_THIS_PACKAGE):
            yield found
        found = found.f_back


def _method(function: Any) -> tuple[str, str] | None:
    """Returns name and replacement of a blocking method of a blocking socket, SQLite, or a TLS context (files)."""
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if name in _SOCKET_METHODS and isinstance(owner, socket.socket) and owner.gettimeout() != 0:
        return f"socket.{name}", _STREAMS
    if name in _SQLITE_METHODS and isinstance(owner, sqlite3.Connection | sqlite3.Cursor):
        return f"sqlite3.{type(owner).__name__}.{name}", _THREAD
    if name in _TLS_METHODS and isinstance(owner, ssl.SSLContext):
        return f"ssl.SSLContext.{name}", _THREAD
    return None


def _harmless(caller: FrameType) -> bool:
    """Returns whether the standard library makes the call for an import, for a traceback, or to start a thread."""
    frame: FrameType | None = caller
    if caller.f_code.co_filename.startswith(_IMPORTS):
        return True
    while frame is not None and frame.f_code.co_filename.startswith(_STANDARD):
        if frame.f_code is _START or frame.f_code.co_filename.endswith(_READS_SOURCES):
            return True
        frame = frame.f_back
    return False
