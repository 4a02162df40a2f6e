"""Removes environment variables that would change the tests, so that they run alike on every machine.

The variables are those that hpad, or a server started by tests, would read. They are removed before any import; a test
of such a variable sets it. So no test reaches the developer's own cluster.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

ADDED: Final = ("LANG", "NO_PROXY", "no_proxy", "PYTHONPATH", "SSL_CERT_FILE", "TMPDIR")
"""Variables that `settle` sets."""
_MEMORY: Final = "/dev/shm"
_ROOM: Final = 4 * 2**30
_HIDING: Final = str(Path(__file__).with_name("hiding"))
"""A folder of modules that hide what hpad does not need from the processes that tests start."""

OURS = (
    "HPAD_EFFORT",
    "HPAD_NO_SKIPS",
    "HPAD_TEST_CELERY",
    "HPAD_TEST_CELERY_LONG",
    "HPAD_TEST_CELERY_REPORT",
    "HPAD_CRASH_KILLS",
    "HPAD_CRASH_SEEDS",
    "HPAD_CRASH_TROUBLES",
    "HPAD_LIVES",
    "HPAD_TEMPLATES",
    "HPAD_TEST_RABBITMQ",
)
"""Variables for developers; see CONTRIBUTING.md."""
EFFORT: Final = int(os.environ.get("HPAD_EFFORT", "1"))
"""How many times as many seeds and generated inputs some tests try; `make soak` sets it."""
_READ = (
    "HPAD_", "KUBECONFIG", "KUBECTL_", "KUBERNETES_", "DISABLE_HTTP2",
    "NOTIFY_SOCKET", "WATCHDOG_", "JOURNAL_STREAM", "INVOCATION_ID", "LISTEN_", "MEMORY_PRESSURE_", "STATE_DIRECTORY",
    "RABBITMQ_", "ERL_", "REDISCLI_", "AWS_", "BOTO_", "MOTO_",
    "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM",
    "LANGUAGE", "LC_", "TZ",
    "PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONDONTWRITEBYTECODE", "PYTHONOPTIMIZE", "PYTHONWARNINGS",
)  # fmt: skip
"""Prefixes of variables that hpad, systemd's clients, the servers, terminal output or Python read."""


def settle(environ: MutableMapping[str, str]) -> None:
    """Removes these variables, sets a locale that every machine has, and excludes loopback from proxies.

    Each process that imports aiohttp would load the certificate authorities of the machine, which no test needs.
    """
    for name in [name for name in environ if name.startswith(_READ) and name not in OURS]:
        del environ[name]
    environ["LANG"] = "C.UTF-8"
    environ["NO_PROXY"] = environ["no_proxy"] = "127.0.0.1,localhost,::1"
    environ["SSL_CERT_FILE"] = os.devnull
    environ["PYTHONPATH"] = _HIDING
    if _has_room(_MEMORY):
        environ.setdefault("TMPDIR", _MEMORY)


def _has_room(folder: str) -> bool:
    """Returns whether the temporary files of all tests fit there, and programs among them can be started.

    Containers often have 64 MB there. A file on a disk costs five times the CPU time of one in memory.
    """
    if not os.access(folder, os.W_OK):
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize >= _ROOM and not found.f_flag & os.ST_NOEXEC


def every(step: int) -> int:
    """Returns the step at which a test takes recordings: the given one, or a smaller one with HPAD_EFFORT."""
    return max(1, step // EFFORT)
