"""Requests to the brokers of a Kafka cluster, by the connections and messages of aiokafka.

A batch opens its connections and closes them. The library reads responses of up to 2 GiB, so the stream is bounded;
its clients with background tasks and retries are not used. Source: Apache Kafka, "Kafka protocol guide".
"""

import asyncio
import io
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from aiokafka import errors
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection, ScramAuthenticator
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest

from hpad.adapter import AdapterError, reason
from hpad.adapter_http import failure
from hpad_adapters.credentials import Trust
from hpad_adapters.kafka.settings import Partition
from hpad_adapters.servers import Servers, none_answered

MAX_BYTES = 1 << 20
"""The limit for one response: some ten thousand partitions."""
_SHORT = 1 << 14
"""Bytes of a response that take no time to speak of."""
MAX_ITERATIONS = 100_000
"""Of SCRAM, which the broker chooses: 4096 by default. More would take a thread for minutes."""
MAX_BROKERS = 256
"""The limit for the connections of a batch: a broker names the leaders of partitions."""
LATEST, EARLIEST = -1, -2
"""Timestamps of ListOffsets."""
_GROUP = 0
_MANY_MS = 600_000  # hpad ends calls that take too long
_UNKNOWN_TOPIC = 3
_FIELDS = 2  # timestamp and offset

# It logs each login, and a traceback for each malformed response; the errors reach the metrics.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

Address = tuple[str, int]


class Login(NamedTuple):
    """How to connect: a TLS context, and the user with its password, or a token, of a SASL mechanism.

    `discard` is called with a token that a broker has refused.
    """

    tls: ssl.SSLContext | None
    mechanism: str
    username: str
    password: str
    token: str
    trust: Trust
    discard: Callable[[str], None]

    def check(self, at: Address) -> None:
        """Raises AdapterError for a broker that may not get the password or token. SCRAM sends neither."""
        if self.mechanism in ("PLAIN", "OAUTHBEARER"):
            self.trust.check("Kafka broker", *at)


class _Token(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


class _Scram(ScramAuthenticator):
    def create_salted_password(self, salt: bytes, iterations: int) -> None:
        if iterations > MAX_ITERATIONS:
            raise errors.SaslAuthenticationFailed(f"the broker asks for {iterations} iterations of SCRAM")
        super().create_salted_password(salt, iterations)


class KafkaTooMuchError(ConnectionError):
    """The broker sent too much; the message is the end of a sentence that begins with the broker."""


class _Reader:
    """The stream that the library reads from: it refuses a length before anything of that length is allocated."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def at_eof(self) -> bool:
        return self._reader.at_eof()

    async def readexactly(self, count: int) -> bytes:
        if not 0 <= count <= MAX_BYTES:
            raise KafkaTooMuchError(f"sent more than {MAX_BYTES >> 20} MiB, too much for an answer, or is not Kafka")
        return await self._reader.readexactly(count)


class _Undecoded:
    """Stands for the class of a response."""

    @staticmethod
    def decode(content: io.BytesIO) -> bytes:
        return content.read()


class _Connection(AIOKafkaConnection):
    def send(self, request: Any, expect_response: bool = True) -> Any:
        """Returns the response, which a thread decodes if it is long: 1 MiB takes up to 2 s."""
        received: Any = super().send(request, expect_response)
        _, sent, _ = self._requests[-1]
        kind, sent.RESPONSE_TYPE = sent.RESPONSE_TYPE, _Undecoded
        return self._decoded(kind, received)

    async def _decoded(self, kind: Any, received: Awaitable[bytes]) -> Any:
        content = await received
        stream = io.BytesIO(content)
        return kind.decode(stream) if len(content) <= _SHORT else await asyncio.to_thread(kind.decode, stream)

    def _create_reader_task(self) -> Any:
        self._reader: Any = _Reader(self._reader)
        return super()._create_reader_task()

    def authenticator_scram(self) -> ScramAuthenticator:
        return _Scram(
            loop=self._loop,
            sasl_plain_password=self._sasl_plain_password,
            sasl_plain_username=self._sasl_plain_username,
            sasl_mechanism=self._sasl_mechanism,
        )


class Topics(NamedTuple):
    """The answer of Metadata: the leader's address of each partition, and the first error of a topic or partition."""

    leaders: Mapping[Partition, Address]
    fault: AdapterError | None


class KafkaCluster:
    """The connections of one batch. Methods raise AdapterError.

    `seconds` is how long one broker may take to connect, and for each answer. A metric whose answers are not there at
    `end`, a time of the loop, is an error, so that the call can still return the others.
    """

    def __init__(self, servers: Servers[Address], login: Login, seconds: float, end: float) -> None:
        self._servers = servers
        self._login = login
        self._seconds = seconds
        self._end = end
        self._open: dict[Address, asyncio.Task[_Connection]] = {}
        self._first: Address | None = None

    def close(self) -> None:
        """Closes the connections."""
        for task in self._open.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().close()
            else:
                task.cancel()

    async def bootstrap(self) -> None:
        """Connects to the first bootstrap server that accepts."""

        async def connected(address: Address) -> Address:
            await self._connection(address)
            return address

        self._first = await self._servers.ask(connected, AdapterError, none_answered)

    async def topics(self, names: Iterable[str]) -> Topics:
        """Returns partitions and leaders of topics, without creating a topic."""
        response = await self._asked(self._bootstrapped, MetadataRequest(sorted(names), False))
        brokers = {each[0]: (each[1], each[2]) for each in response.brokers}
        leaders: dict[Partition, Address] = {}
        fault: AdapterError | None = None
        for code, topic, *_, partitions in response.topics or ():
            if code and fault is None:
                fault = _fault(f'topic "{topic}"', code, "spec" if code == _UNKNOWN_TOPIC else "source")
            for _, number, leader, *_ in partitions:
                if leader in brokers:
                    leaders[str(topic), number] = brokers[leader]
                elif fault is None:
                    fault = AdapterError(f'partition {number} of topic "{topic}" has no leader')
        return Topics(leaders, fault)

    async def committed(self, group: str, partitions: Iterable[Partition] | None) -> dict[Partition, int]:
        """Returns the committed offsets of a group, of all its partitions for None; -1 where there is none."""
        found = await self._asked(self._bootstrapped, FindCoordinatorRequest(group, _GROUP))
        if found.error_code:
            raise _fault(f'the coordinator of group "{group}"', found.error_code)
        wanted = None if partitions is None else _by_topic(partitions)
        response = await self._asked((found.host, found.port), OffsetFetchRequest(group, wanted))
        if code := getattr(response, "error_code", 0):
            raise _fault(f'group "{group}"', code)
        offsets: dict[Partition, int] = {}
        for topic, each in response.topics or ():
            for number, offset, _, code in each:
                if code:
                    raise _fault(f'group "{group}" of topic "{topic}"', code)
                offsets[str(topic), number] = offset
        return offsets

    async def offsets(self, leaders: Mapping[Partition, Address], time: int) -> dict[Partition, int]:
        """Returns the first (EARLIEST) or the end (LATEST) offset of each partition, by its leader."""
        by_leader: dict[Address, list[Partition]] = {}
        for partition, address in leaders.items():
            by_leader.setdefault(address, []).append(partition)
        # Not a TaskGroup, which would wrap the error.
        found = await asyncio.gather(*(self._listed(*each, time) for each in by_leader.items()))
        return {partition: offset for each in found for partition, offset in each.items()}

    async def _listed(self, at: Address, partitions: list[Partition], time: int) -> dict[Partition, int]:
        topics = [(topic, [(number, time) for number in numbers]) for topic, numbers in _by_topic(partitions)]
        response = await self._asked(at, OffsetRequest(-1, 0, topics))
        found: dict[Partition, int] = {}
        for topic, each in response.topics or ():
            for number, code, *rest in each:
                if code:
                    raise _fault(f'partition {number} of topic "{topic}"', code)
                if len(rest) < _FIELDS:
                    raise AdapterError(f"{_name(at)} is older than Kafka 0.10.1")
                found[topic, number] = rest[1]
        return found

    @property
    def _bootstrapped(self) -> Address:
        assert self._first is not None
        return self._first

    async def _asked(self, at: Address, request: Any) -> Any:
        try:
            async with asyncio.timeout_at(self._end):
                return await self._answered(at, request)
        except TimeoutError:
            raise self._late(at, "is too slow: the time of the call was over before its answer") from None

    async def _answered(self, at: Address, request: Any) -> Any:
        connection = await self._connection(at)
        try:
            async with asyncio.timeout(self._seconds):
                return await connection.send(request)
        except Exception as error:  # noqa: BLE001  # the library raises any kind for a malformed response
            raise self._unusable(at, error) from None

    async def _connection(self, at: Address) -> _Connection:
        """Returns the connection to a broker; callers at the same time share it."""
        if at not in self._open:
            if len(self._open) >= MAX_BROKERS:
                raise AdapterError(f"{_name(self._bootstrapped)} names more than {MAX_BROKERS} brokers", lasting=True)
            self._open[at] = asyncio.ensure_future(self._connected(at))
        return await asyncio.shield(self._open[at])

    async def _connected(self, at: Address) -> _Connection:
        login = self._login
        login.check(at)
        transport = "SSL" if login.tls is not None else "PLAINTEXT"
        connection = _Connection(
            *at,
            client_id="hpad",
            request_timeout_ms=_MANY_MS,
            ssl_context=login.tls,
            security_protocol=f"SASL_{transport}" if login.mechanism else transport,
            sasl_mechanism=login.mechanism or None,
            sasl_plain_username=login.username,
            sasl_plain_password=login.password,
            sasl_oauth_token_provider=_Token(login.token),
        )
        try:
            async with asyncio.timeout(self._seconds):
                await connection.connect()
        except Exception as error:  # noqa: BLE001  # the library raises any kind for a malformed response
            if isinstance(error, errors.SaslAuthenticationFailed):
                login.discard(login.token)
            raise self._unusable(at, error) from None
        return connection

    def _unusable(self, at: Address, error: Exception) -> AdapterError:
        """Returns the error of a broker."""
        if isinstance(error, TimeoutError):
            return self._late(at, f"did not answer within {self._seconds:g}s")
        return AdapterError(f"{_name(at)} {_failure(error)}")

    def _late(self, at: Address, text: str) -> AdapterError:
        """Returns the error of a broker without an answer in time, which has kept the other groups waiting."""
        if at == self._first:  # it has connected, and hangs since: the next batch begins with another one
            self._servers.put_last(at)
        return AdapterError(f"{_name(at)} {text}", late=True)


def _by_topic(partitions: Iterable[Partition]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return list(found.items())


def _name(at: Address) -> str:
    return f"Kafka broker {at[0]}:{at[1]}"


def _fault(what: str, code: int, blame: Any = "source") -> AdapterError:
    """Returns the error for an error code of the protocol, with its name and text there."""
    kind = errors.for_code(code)
    return AdapterError(f"{what}: {getattr(kind, 'message', '') or kind.__name__} ({kind.description or code})", blame)


def _failure(error: Exception) -> str:
    """Returns the end of a sentence that begins with the broker. The text of a refused login names no secret."""
    cause: BaseException = error.__cause__ or error
    if isinstance(cause, KafkaTooMuchError):
        return str(cause)
    if isinstance(error, errors.SaslAuthenticationFailed | errors.UnsupportedSaslMechanismError):
        return f"refuses the login: {error}"
    if isinstance(cause, OSError | EOFError | UnicodeError):
        return failure(cause)
    return f"did not answer as Kafka does ({reason(error)})"
