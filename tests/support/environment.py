"""What the tests take from the environment of the machine: as little as can be, so that they go alike on any.

Variables that hpad, or a server that the tests start, would read are removed before anything is imported; a test that
is about one sets it. So an HPAD_ variable of the shell reaches no daemon under test, and no test finds the cluster of
whoever runs it.
"""

from collections.abc import MutableMapping

OURS = (
    "HPAD_NO_SKIPS",
    "HPAD_CRASH_SEEDS",
    "HPAD_CRASH_TROUBLES",
    "HPAD_LIVES",
    "HPAD_SHARDS_SEED",
    "HPAD_SHARDS_ROUNDS",
)
"""For people who run the tests; CONTRIBUTING.md says what they do."""
_READ = (
    "HPAD_", "KUBECONFIG", "KUBECTL_", "KUBERNETES_",
    "NOTIFY_SOCKET", "WATCHDOG_", "JOURNAL_STREAM", "INVOCATION_ID", "LISTEN_", "MEMORY_PRESSURE_", "STATE_DIRECTORY",
    "RABBITMQ_", "ERL_", "REDISCLI_",
    "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM",
    "LANGUAGE", "LC_", "TZ",
    "PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONOPTIMIZE", "PYTHONWARNINGS",
)  # fmt: skip
"""Variables that begin so are read by hpad, systemd's clients, the servers, what prints, or Python."""


def settle(environ: MutableMapping[str, str]) -> None:
    """Remove what is read by what is under test; set the locale that every machine has, and no proxy for loopback."""
    for name in [name for name in environ if name.startswith(_READ) and name not in OURS]:
        del environ[name]
    environ["LANG"] = "C.UTF-8"
    environ["NO_PROXY"] = environ["no_proxy"] = "127.0.0.1,localhost,::1"
