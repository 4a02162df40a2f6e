"""The contract check for authors of adapters: it passes valid adapters and names what is wrong with others."""

import asyncio
import concurrent.futures
import contextlib
import importlib
import linecache
import re
import socket
import sqlite3
import subprocess
import sys
import traceback
import urllib.request
from pathlib import Path
from time import sleep

import msgspec
import pytest
import uvloop
from support import virtual_time

from hpad import testing
from hpad.adapter import EXTERNAL, AdapterError, ExternalSample
from hpad.testing.contract import ContractBroken

QUERIES = [testing.external("a"), testing.external("b"), testing.external("missing")]


class Good:
    """The adapter of the documentation: numbers from a table."""

    serves = frozenset({EXTERNAL})

    class Settings(msgspec.Struct):
        """None."""

    def __init__(self) -> None:
        self.closed = 0

    async def answer(self, queries):
        await asyncio.sleep(0)
        return [await self.one(query) for query in queries]

    async def one(self, query):
        if query.name == "missing":
            return AdapterError('there is no "missing"', "spec")
        return ExternalSample((len(query.name) * 1000,), virtual_time.START)

    async def aclose(self) -> None:
        self.closed += 1


class WrongLength(Good):
    async def answer(self, queries):
        return (await super().answer(queries))[:2]


class Raises(Good):
    async def one(self, query):
        raise ValueError(query.name)


class Floats(Good):
    async def one(self, query):
        return ExternalSample((0.5,), virtual_time.START)


class WrongOrder(Good):
    async def answer(self, queries):
        answers = await super().answer(queries)
        return sorted(answers, key=lambda answer: isinstance(answer, ExternalSample))


class OnlyBatches(Good):
    async def answer(self, queries):
        if len(queries) == 1:
            return [AdapterError("one is too few")]
        return await super().answer(queries)


class NotEmpty(Good):
    async def answer(self, queries):
        return await super().answer(queries) if queries else None


class Stubborn(Good):
    async def answer(self, queries):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
        return await super().answer(queries)


class ClosesOnce(Good):
    async def aclose(self) -> None:
        self.closed += 1
        if self.closed > 1:
            raise RuntimeError("closed already")


class NeverCloses(Good):
    async def aclose(self) -> None:
        await asyncio.Event().wait()


class ServesNothing(Good):
    serves = frozenset()


class NoSettings(Good):
    Settings = dict


class OneFile(Good):
    files = "rules.yaml"


class Unprepared(Good):
    async def prepare(self):
        raise FileNotFoundError


class OneName(Good):
    metrics = "depth"


class NotAsync(Good):
    def answer(self, queries):
        return [AdapterError("the server is down")] * len(queries)


class UnknownBlame(Good):
    async def one(self, query):
        return AdapterError("the server is down", "network")


def nap():
    """Hides the call from linters."""
    sleep(0.001)


class Sleeps(Good):
    async def one(self, query):
        nap()
        return await super().one(query)


class Reads(Good):
    async def one(self, query):
        Path(__file__).read_text()  # noqa: ASYNC240  # the check must notice it
        return await super().one(query)


class Lists(Good):
    async def one(self, query):
        list(Path(__file__).parent.iterdir())
        return await super().one(query)


class Connects(Good):
    async def one(self, query):
        sqlite3.connect(":memory:")
        return await super().one(query)


class Selects(Good):
    """Connects in a thread, and asks in the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.database = sqlite3.connect(":memory:")

    async def one(self, query):
        self.database.execute("SELECT count(*) FROM sqlite_master")
        return await super().one(query)


class Fetches(Selects):
    def __init__(self) -> None:
        super().__init__()
        self.rows = self.database.execute("SELECT 1")

    async def one(self, query):
        self.rows.fetchone()
        return await Good.one(self, query)


class Downloads(Good):
    async def one(self, query):
        urllib.request.urlopen("http://127.0.0.1:9/", timeout=5)  # noqa: ASYNC210  # the check must notice it
        return await super().one(query)


class Resolves(Good):
    async def one(self, query):
        socket.getaddrinfo("localhost", 80)
        return await super().one(query)


class Receives(Good):
    async def one(self, query):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.send(b"x")
            ours.recv(1)
        return await super().one(query)


class Starts(Good):
    async def one(self, query):
        subprocess.run(["true"], check=True)  # noqa: ASYNC221  # the check must notice it
        return await super().one(query)


class Waits(Good):
    async def one(self, query):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            pool.submit(sleep, 0.001).result()
        return await super().one(query)


class Swallows(Good):
    async def one(self, query):
        with contextlib.suppress(Exception):
            nap()
        return await super().one(query)


class InATask(Good):
    async def one(self, query):
        async def asleep():
            nap()

        await asyncio.gather(asleep(), return_exceptions=True)
        return await super().one(query)


class Computes(Good):
    async def one(self, query):
        total = 0
        for number in range(2_000_000):
            total += abs(number)
        return await super().one(query)


class WhileClosing(Good):
    async def aclose(self):
        nap()


@pytest.mark.parametrize(
    ("adapter", "what", "instead"),
    [
        (Sleeps, "time.sleep", "context.clock.sleep"),
        (Reads, "open", "asyncio.to_thread"),
        (Lists, "os.(listdir|scandir)", "asyncio.to_thread"),
        (Connects, "sqlite3.connect", "asyncio.to_thread"),
        (Selects, "sqlite3.Connection.execute", "asyncio.to_thread"),
        (Fetches, "sqlite3.Cursor.fetchone", "asyncio.to_thread"),
        (Downloads, "socket.", "context.http|loop.getaddrinfo"),
        (Resolves, "socket.getaddrinfo", "loop.getaddrinfo"),
        (Receives, "socket.send", "context.http"),
        (Starts, "subprocess.run", "asyncio.create_subprocess_exec"),
        (Waits, "threading", "asyncio.to_thread"),
        (Swallows, "time.sleep", "context.clock.sleep"),
        (InATask, "time.sleep", "context.clock.sleep"),
        (Computes, "more than 1,000,000 calls without an await", "asyncio.to_thread"),
        (WhileClosing, "time.sleep", "context.clock.sleep"),
    ],
)
def test_a_call_that_blocks_the_event_loop_is_named_with_its_line_and_a_replacement(
    adapter, what, instead, no_blocking_calls
):
    no_blocking_calls.deactivate()  # it would raise before the contract check does
    line = rf"{re.escape(__file__)}:\d+"
    where = "nap" if adapter in (Sleeps, Swallows, InATask, WhileClosing) else f"{adapter.__name__}.one"
    complaint = rf"^{where} \({line}\) blocks the event loop: {what}.*({instead})"
    before = sys.getprofile()
    with pytest.raises(ContractBroken, match=complaint):
        virtual_time.run(testing.check_adapter(adapter(), QUERIES))
    assert sys.getprofile() is before


class Threads(Good):
    """Blocking calls in threads."""

    async def one(self, query):
        for blocks in (lambda: sleep(0.001), Path(__file__).read_text, lambda: subprocess.run(["true"], check=True)):
            await asyncio.to_thread(blocks)
        process = await asyncio.create_subprocess_exec("true")
        await process.wait()
        try:
            raise ValueError("the lines of a traceback are read from files")
        except ValueError:
            linecache.clearcache()
            traceback.format_exc()
        return await super().one(query)


class Imports(Good):
    """An import lists folders; it happens once, and an adapter cannot avoid it if its client does so."""

    async def one(self, query):
        sys.path_importer_cache.clear()
        with contextlib.suppress(ImportError):
            importlib.import_module("this_is_no_module")
        return await super().one(query)


class Streams(Good):
    async def one(self, query):
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            await reader.read()
            writer.close()
        return await super().one(query)


class YieldsOften(Good):
    """A long computation in steps."""

    async def one(self, query):
        for number in range(40_000):
            abs(number)
            if number % 1000 == 0:
                await asyncio.sleep(0)
        return await super().one(query)


@pytest.mark.parametrize("adapter", [Threads, Imports, Streams, YieldsOften])
@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_blocking_calls_in_threads_and_asynchronous_ones_pass(adapter, loop_factory, no_blocking_calls):
    no_blocking_calls.deactivate()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert len(runner.run(testing.check_adapter(adapter(), QUERIES))) == 3


@pytest.mark.parametrize("adapter", [Sleeps, InATask, Computes])
def test_a_loop_of_uvloop_is_watched_as_well(adapter):
    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(ContractBroken, match="blocks the"),
    ):
        runner.run(testing.check_adapter(adapter(), QUERIES))


def test_a_good_adapter_passes_and_its_answers_come_back():
    adapter = Good()
    answers = virtual_time.run(testing.check_adapter(adapter, QUERIES))
    assert [type(answer) for answer in answers] == [ExternalSample, ExternalSample, AdapterError]
    assert adapter.closed == 2


def test_an_adapter_may_raise_an_error_instead_of_returning_it():
    class Down(Good):
        async def answer(self, queries):
            raise AdapterError("the server is down")

    assert virtual_time.run(testing.check_adapter(Down(), QUERIES)) == [AdapterError("the server is down")] * 3


@pytest.mark.parametrize(
    ("adapter", "complaint"),
    [
        (WrongLength, "gave 2 answers to 3 queries"),
        (Raises, r"answer\(\) raised ValueError\('a'\); return an AdapterError as the answer instead"),
        (Floats, "the value 0.5, which is not a whole number of thousandths"),
        (WrongOrder, "query 0 in reverse order|sent one by one"),
        (OnlyBatches, "sent one by one is answered"),
        (NotEmpty, "an empty batch must have an empty answer|answered nothing"),
        (Stubborn, "swallowed its cancellation"),
        (ClosesOnce, r"aclose\(\) a second time failed: RuntimeError\('closed already'\)"),
        (NeverCloses, r"aclose\(\) failed: TimeoutError"),
        (ServesNothing, "ServesNothing: serves must be a frozenset of some of Resource"),
        (NoSettings, "Settings must be a msgspec.Struct"),
        (OneFile, "`files` of its adapter is not a tuple of paths"),
        (Unprepared, r"prepare\(\) failed: FileNotFoundError"),
        (OneName, "`metrics` of its adapter is not a tuple of patterns"),
        (NotAsync, r"answer\(\) is not a coroutine function: write async def answer"),
        (UnknownBlame, "an error whose blame is none of spec, source, cluster, bug: the server is down"),
    ],
)
def test_each_breach_of_the_contract_is_named(adapter, complaint):
    with pytest.raises(ContractBroken, match=complaint):
        virtual_time.run(testing.check_adapter(adapter(), QUERIES))


async def test_a_context_has_the_fields_that_the_daemon_fills():
    async with testing.context("mine") as context:
        assert context.name == "mine"
        assert context.api is None
        assert not context.http.closed
    assert context.http.closed


def test_the_checks_need_no_pytest():
    code = "import sys, hpad.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
