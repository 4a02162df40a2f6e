"""The contract check that authors of adapters use: it passes the good and names what is wrong with the others."""

import asyncio
import subprocess
import sys

import msgspec
import pytest
import virtual

from hpad import testing
from hpad.adapter import EXTERNAL, AdapterError, ExternalSample
from hpad.testing.contract import ContractBroken

QUERIES = [testing.external("a"), testing.external("b"), testing.external("missing")]


class Good:
    """What the documentation shows: numbers from a table."""

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
        return ExternalSample((len(query.name) * 1000,), virtual.START)

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
        return ExternalSample((0.5,), virtual.START)


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


def test_a_good_adapter_passes_and_its_answers_come_back():
    adapter = Good()
    answers = virtual.run(testing.check_adapter(adapter, QUERIES))
    assert [type(answer) for answer in answers] == [ExternalSample, ExternalSample, AdapterError]
    assert adapter.closed == 2


def test_an_error_that_is_raised_is_as_good_as_one_that_is_returned():
    class Down(Good):
        async def answer(self, queries):
            raise AdapterError("the server is down")

    assert virtual.run(testing.check_adapter(Down(), QUERIES)) == [AdapterError("the server is down")] * 3


@pytest.mark.parametrize(
    ("adapter", "complaint"),
    [
        (WrongLength, "gave 2 answers to 3 queries"),
        (Raises, r"answer\(\) raised ValueError\('a'\); give an AdapterError as the answer instead"),
        (Floats, "the value 0.5, not an int of milli-units"),
        (WrongOrder, "query 0 in reverse order|asked one by one"),
        (OnlyBatches, "asked one by one is answered"),
        (NotEmpty, "an empty batch must have an empty answer|answered NoneType"),
        (Stubborn, "swallowed its cancellation"),
        (ClosesOnce, r"aclose\(\) a second time failed: RuntimeError\('closed already'\)"),
        (NeverCloses, r"aclose\(\) failed: TimeoutError"),
        (ServesNothing, "serves must be a frozenset of some of Resource"),
        (NoSettings, "Settings must be a msgspec.Struct"),
    ],
)
def test_what_breaks_the_contract_is_named(adapter, complaint):
    with pytest.raises(ContractBroken, match=complaint):
        virtual.run(testing.check_adapter(adapter(), QUERIES))


async def test_a_context_has_what_the_daemon_gives():
    async with testing.context("mine") as context:
        assert context.name == "mine"
        assert context.api is None
        assert not context.http.closed
    assert context.http.closed


def test_the_checks_need_no_pytest():
    code = "import sys, hpad.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
