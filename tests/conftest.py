"""What all rooms share: the vectors, what may be skipped, blocking calls, and the count of conformance rows."""

import gc
import gzip
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
import pytest
import structlog
from blockbuster import BlockBuster, blockbuster_ctx
from support import distribution, environment

pytest_plugins = ("support.brokers", "support.workers")

DATA = Path(__file__).resolve().parent / "data"
MAY_BE_SKIPPED = "real_kube_apiserver"
RECOVERY = "recovery"
BUDGET = "budget"

environment.settle(os.environ)
if another_broker := os.environ.get("HPAD_TEST_RABBITMQ"):
    from hpad.lab.servers import rabbitmq

    rabbitmq.PROGRAM = Path(another_broker)
# What is imported and collected stays: see `pytest_collection_finish`.
gc.disable()
# Else each run rewrites the assertions of every test again, and each process of hpad compiles its modules.
sys.dont_write_bytecode = False
# A job in the background of a shell ignores SIGINT, and so would the programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# No test is about how fast the machine is, and none is led by what failed in a run before.
hypothesis.settings.register_profile(
    "hpad", deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("hpad")


def read_vectors(name: str, step: int = 1) -> Iterator[dict[str, Any]]:
    """Yields each step-th row of one vector file, from the first one on, e.g. `read_vectors("quantity")`."""
    with gzip.open(DATA / "vectors" / f"{name}.jsonl.gz") as lines:
        yield from map(msgspec.json.decode, itertools.islice(lines, 0, None, step))


@pytest.fixture(scope="session")
def vectors() -> Any:
    """The function `read_vectors`, for tests that take it as a fixture."""
    return read_vectors


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder of the exchanges recorded from a real API server; `tests/data/README.md` describes them."""
    return DATA / "fixtures"


@pytest.fixture(scope="session")
def recorded(recordings: Path) -> Callable[[str], Any]:
    """Reads one recorded exchange: `recorded("scale/deployment_get")`."""
    return lambda name: json.loads((recordings / f"{name}.json").read_text("utf-8"))


@pytest.fixture
def recovered(record_property: Callable[[str, object], None]) -> Callable[[float, str], None]:
    """Records the seconds that a recovery took; the run ends with a list of these.

    It is a property of the test, which a worker's report carries along. Output of a test is shown only if it fails.
    """
    return lambda seconds, what: record_property(RECOVERY, (what, seconds))


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Restores the logging: a command sets it to a standard error that is closed when its test ends."""
    configured, before = structlog.is_configured(), structlog.get_config()
    yield
    if configured:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()


@pytest.fixture(autouse=True, scope="session")
def blocker() -> Iterator[BlockBuster]:
    """A blocking call of ours inside a coroutine fails the test."""
    with blockbuster_ctx("hpad") as made:
        # The end of asyncio.run waits for the thread that ends the executor; the frames of uvloop are not seen there.
        made.functions["threading.Lock.acquire"].can_block_in("asyncio/runners.py", "close")
        yield made


@pytest.fixture
def no_blocking_calls(blocker: BlockBuster) -> Iterator[BlockBuster]:
    """For tests that deactivate this check for themselves."""
    yield blocker
    blocker.activate()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the tests that wait longest, see `support.distribution`."""
    items.sort(key=lambda item: distribution.rank(item.nodeid))


def pytest_collection_finish() -> None:
    """Collects garbage seldom, as the daemon does: each search would look at 10,000 tests and all modules again."""
    gc.set_threshold(20_000, 5, 10)
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints results of the tests: conformance rows that passed, times of recovery, and the cost of a reconcile.

    Tests record ("conformance", (file, passed, total)), ("recovery", (fault, seconds)) and ("budget", a sentence).
    """
    _print_conformance(terminalreporter)
    for after, seconds in sorted(_recorded(terminalreporter, RECOVERY)):
        terminalreporter.write_line(f"recovered {seconds:.1f} s after {after}")
    for sentence in _recorded(terminalreporter, BUDGET):
        terminalreporter.write_line(sentence)


def _recorded(terminalreporter: Any, property_name: str) -> list[Any]:
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    return [value for report in reports for name, value in report.user_properties if name == property_name]


def _print_conformance(terminalreporter: Any) -> None:
    counts = {file: (passed, total) for file, passed, total in _recorded(terminalreporter, "conformance")}
    for file, (passed, total) in sorted(counts.items()):
        terminalreporter.write_line(f"conformance {file}: {passed:,} of {total:,}")
    if counts:
        passed, total = (sum(column) for column in zip(*counts.values(), strict=True))
        terminalreporter.write_line(f"conformance: {passed:,} of {total:,}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With HPAD_NO_SKIPS set, a skipped test is a failure, unless it needs a real kube-apiserver."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("HPAD_NO_SKIPS"):
        return
    skipped = [
        report for report in reporter.stats.get("skipped", []) if MAY_BE_SKIPPED not in getattr(report, "keywords", {})
    ]
    for report in skipped:
        reporter.write_line(f"skipped, but nothing may be skipped here: {report.nodeid}: {report.longrepr}", red=True)
    if skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
