"""Runs tests in processes that are forked from the one that has collected them.

To import and collect all tests takes many seconds of CPU and hundreds of MB: forked workers share both. A worker gets
one unit of tests after the other (`support.distribution`), and sends its reports.
"""

import collections
import contextlib
import gc
import itertools
import os
import signal
import traceback
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pytest
from support import distribution

Unit = Sequence[int]
"""The numbers of tests in `session.items`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=1, help="how many processes run tests")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs the tests with several workers; leaves it to pytest where it is told otherwise, or to one process.

    Raises RuntimeError if a worker cannot go on for another reason than a test. A test that ends its worker has failed.
    """
    options = session.config.option
    if options.workers < 2 or options.collectonly or options.usepdb or session.testsfailed:
        return None
    pool = _Pool(session, options.workers)
    try:
        pool.run()
    finally:
        pool.close()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


class _Worker:
    """A forked process: its connection, and the tests of its unit that have not ended."""

    def __init__(self, session: pytest.Session, others: Iterable["_Worker"]) -> None:
        self.left: collections.deque[int] = collections.deque()
        self.connection, inside = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            # With a copy of their ends, the others would not see that the parent has died.
            for connection in (self.connection, *(other.connection for other in others)):
                connection.close()
            _work(session, inside)
        inside.close()


class _Pool:
    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session = session
        self._units = collections.deque(_units(session.items))
        self._workers: dict[Connection, _Worker] = {}
        for _ in range(min(count, len(self._units))):
            self._start()

    def run(self) -> None:
        while self._workers:
            for connection in wait(list(self._workers)):
                assert isinstance(connection, Connection)
                worker = self._workers[connection]
                try:
                    self._take(worker, connection.recv())
                except (EOFError, ConnectionResetError):
                    self._bury(worker)

    def close(self) -> None:
        """Lets the workers stop after their present tests, and waits for the end of what they have started."""
        for connection in self._workers:
            connection.close()
        for worker in self._workers.values():
            os.waitpid(worker.pid, 0)

    def _start(self) -> None:
        worker = _Worker(self._session, self._workers.values())
        self._workers[worker.connection] = worker
        self._give(worker)

    def _give(self, worker: _Worker) -> None:
        """Sends the next unit; None, which ends a unit early, where there is no more to do."""
        unit = self._units.popleft() if self._units and not self._stopping else None
        worker.left = collections.deque(unit or ())
        # One that has just died is found dead at the next look.
        with contextlib.suppress(BrokenPipeError):
            worker.connection.send(unit)

    @property
    def _stopping(self) -> bool:
        return bool(self._session.shouldfail or self._session.shouldstop)

    def _take(self, worker: _Worker, message: Any) -> None:
        match message:
            case "ended":
                if worker.left:
                    worker.left.popleft()
                if not worker.left or self._stopping:
                    self._give(worker)
            case str():
                raise RuntimeError(message)
            case _:
                hook = self._session.config.hook
                report = hook.pytest_report_from_serializable(config=self._session.config, data=message)
                hook.pytest_runtest_logreport(report=report)

    def _bury(self, worker: _Worker) -> None:
        """Reports the test in which a worker has died, and lets another one go on."""
        del self._workers[worker.connection]
        worker.connection.close()
        status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if not worker.left:
            return
        item = self._session.items[worker.left.popleft()]
        end = f"status {status}" if status >= 0 else signal.Signals(-status).name
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", f"its process ended: {end}", "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)
        if worker.left:
            self._units.appendleft(list(worker.left))
        if self._units and not self._stopping:
            self._start()


def _units(items: Sequence[pytest.Item]) -> Iterator[Unit]:
    """Yields the units in the order of their first tests."""
    units: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        units.setdefault(distribution.unit(item.nodeid), []).append(number)
    yield from units.values()


class _Sender:
    """In a worker: sends what is reported about tests."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._connection.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _work(session: pytest.Session, connection: Connection) -> NoReturn:
    """The life of a worker. It ends without Python's own end, which belongs to the parent."""
    status = 0
    try:
        _settle(session.config, connection)
        try:
            _run_units(session, connection)
        finally:
            ended = pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK
            session.config.hook.pytest_sessionfinish(session=session, exitstatus=ended)
    except BaseException as error:  # noqa: BLE001  # its process ends here
        status = 1
        with contextlib.suppress(OSError):  # the parent is at its end, too
            connection.send("".join(traceback.format_exception(error)))
    finally:
        os._exit(status)


def _settle(config: pytest.Config, connection: Connection) -> None:
    """Gives a worker files of its own for captured output, and lets it report to the parent instead of the terminal."""
    plugins = config.pluginmanager
    if capture := plugins.get_plugin("capturemanager"):
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    plugins.unregister(name="terminalreporter")
    # What tells plugins of pytest that another process writes its cache and files.
    vars(config)["workerinput"] = {}
    plugins.register(_Sender(config, connection))


def _run_units(session: pytest.Session, connection: Connection) -> None:
    """Runs units until there is no more. Between units, fixtures of the session stay.

    What the tests before have left, such as caches, is not searched for garbage by tests that do so.
    """
    while (unit := connection.recv()) is not None:
        gc.collect()
        gc.freeze()
        items = [session.items[number] for number in unit]
        for item, following in itertools.zip_longest(items, items[1:], fillvalue=session):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            connection.send("ended")
            if connection.poll() or session.shouldfail or session.shouldstop:
                break
