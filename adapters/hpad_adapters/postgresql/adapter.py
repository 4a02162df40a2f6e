"""External metrics from queries: the query stands in the configuration, the HPA's selector gives its parameters."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Quantity, Query, shown
from hpad_adapters import extras
from hpad_adapters.postgresql.settings import PostgreSQLSettings
from hpad_adapters.selection import attempt, labels, no_metric

_INT64: Final = range(-(2**63), 2**63)
_GRACE_SECONDS: Final = 1.0
_WORDS: Final = {"true": True, "false": False}


class PostgresqlCall(msgspec.Struct, frozen=True):
    """A query with its arguments; equal for queries of HPAs that share an answer."""

    name: str
    arguments: tuple[Any, ...]


class PostgreSQL:
    """Results of SQL queries of a PostgreSQL database, each in a read-only transaction with a time limit."""

    serves = frozenset({EXTERNAL})
    metrics: tuple[str, ...] = ()
    Settings = PostgreSQLSettings

    @staticmethod
    def lacks(settings: PostgreSQLSettings) -> str:
        """Returns the package that is missing; "" if none is."""
        return extras.lacks("asyncpg", "postgresql")

    def __init__(self, settings: PostgreSQLSettings, context: Context) -> None:
        self.metrics = tuple(settings.metrics)
        self.parameters = frozenset(name for metric in settings.metrics.values() for name, _ in metric.parameters)
        self._settings = settings
        self._seconds = context.within(settings.query_seconds)
        self._clock = context.clock
        self._library: Any = extras.load("hpad_adapters.postgresql.connections", "postgresql")
        self._errors: Any = extras.load("asyncpg", "postgresql")
        self._connections: Any = self._library.PostgresqlConnections(settings, context)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a sample or an error per query; raises AdapterError if there is no connection to the server."""
        calls = [attempt(self._call, query) for query in queries]
        distinct = list(dict.fromkeys(call for call in calls if isinstance(call, PostgresqlCall)))
        if distinct:
            await self._connections.ready()
        # The server ends a query by itself; hpad only if the server does not, or if no connection becomes free.
        deadline = asyncio.get_running_loop().time() + self._seconds + _GRACE_SECONDS
        answers = await asyncio.gather(*(self._answered(call, deadline) for call in distinct))
        found = dict(zip(distinct, answers, strict=True))
        return [call if isinstance(call, AdapterError) else found[call] for call in calls]

    def group(self, query: Query) -> PostgresqlCall | None:
        """Returns the query with its arguments, which HPAs of several namespaces may share."""
        call = attempt(self._call, query)
        return None if isinstance(call, AdapterError) else call

    async def explain(self, query: Query) -> str:
        """Returns the SQL of the query with the values of its parameters; raises AdapterError."""
        call = self._call(query)
        values = ", ".join(f"${number} = {value!s}" for number, value in enumerate(call.arguments, 1))
        sql = self._settings.metrics[call.name].query.strip()
        return f"{sql} with {values}" if values else sql

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._connections.aclose()

    def _call(self, query: Query) -> PostgresqlCall:
        """Returns the query of a metric with its arguments; raises AdapterError."""
        metric = self._settings.metrics.get(query.name)
        if metric is None:
            raise no_metric(query, self._settings.metrics)
        by_label = labels(query, [name for name, _ in metric.parameters])
        try:
            arguments = tuple(argument(name, kind, by_label[name]) for name, kind in metric.parameters)
        except ValueError as error:
            raise AdapterError(f'metric "{query.name}": {error}', "spec") from None
        return PostgresqlCall(query.name, arguments)

    async def _answered(self, call: PostgresqlCall, deadline: float) -> Answer:
        try:
            async with asyncio.timeout_at(deadline), self._connections.connection() as connection:
                return await self._read(call, connection)
        except AdapterError as error:
            return error
        except TimeoutError:
            return self._failed(call, f"has no answer within {self._seconds:g}s")
        except Exception as error:  # noqa: BLE001  # the library raises any kind for a malformed message
            lost: AdapterError = self._library.lost(self._connections.name, error)
            return lost

    async def _read(self, call: PostgresqlCall, connection: Any) -> Answer:
        """Returns the sample of one query, or the error of a server that can be used for other queries."""
        query = self._settings.metrics[call.name].query
        try:
            value = await self._library.number(connection, query, call.arguments, self._seconds)
            milli = _milli(value)
        except self._library.PostgresqlNoNumberError as error:
            return self._failed(call, str(error))
        except self._errors.PostgresError as error:
            if connection.is_closed():
                raise
            if isinstance(error, self._errors.QueryCanceledError):
                return self._failed(call, f"has no answer within {self._seconds:g}s")
            refused = self._library.refusal(f'metric "{call.name}": {self._connections.name}', error)
            return AdapterError(refused.message, lasting=refused.lasting, alive=True)
        if milli is None:
            return self._failed(call, "returns a number that is not finite, or too large")
        return ExternalSample((milli,), self._clock.now())

    def _failed(self, call: PostgresqlCall, why: str) -> AdapterError:
        return AdapterError(f'metric "{call.name}": the query {why}', alive=True)


def argument(name: str, kind: str, text: str) -> Any:
    """Returns the value of a label in the type of its parameter; raises ValueError."""
    try:
        if kind == "integer":
            value = int(text)
            if value in _INT64 and "_" not in text:
                return value
        elif kind == "number":
            number = Decimal(text)
            if number.is_finite() and "_" not in text:
                return number
        elif kind == "boolean":
            return _WORDS[text]
        else:
            return text
    except (ValueError, ArithmeticError, KeyError):
        pass
    raise ValueError(f"{name}={shown(text)} is not of type {kind}")


def _milli(value: Any) -> int | None:
    """Returns thousandths; None for a number that is not finite, or too large."""
    try:
        # Of a float, digits below a billionth are noise, which must not round 30 up to 30.001.
        milli = int(Quantity.parse(f"{value:.9f}" if isinstance(value, float) else str(value)).milli())
    except ValueError:
        return None
    return milli if milli in _INT64 else None
