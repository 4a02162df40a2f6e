"""Asks the workers of a Celery application by its remote control, with kombu. Blocks: runs in a thread of its own.

A message to the exchange of the remote control reaches the mailbox of each worker; the answers come to a queue that
lives as long as the connection. Source: kombu/pidbox.py; celery/worker/control.py.

What an asking leaves behind: on RabbitMQ nothing, since requests expire with the deadline and the queue is exclusive.
On Redis, which drops requests that no worker listens to, the queue and its binding are removed at the end.
"""

import contextlib
import uuid
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import kombu
import msgspec
from kombu.transport import pyamqp

from hpad.adapter import AdapterError, Context, reason, shown
from hpad.adapter_http import failure
from hpad_adapters.celery.reports import COMMANDS, Gathered
from hpad_adapters.celery.workers import WorkersLink

MOST_REPLIES = 20_000
MOST_BYTES = 32 << 20
"""Of all answers to one asking."""
QUIET = 0.1
"""Seconds without an answer after which workers that were not known before are not waited for."""
_SLICE = 0.05
"""Seconds after which it is looked again whether all have answered, or the asking is cancelled."""
_MOST_PROBED = 100
"""Mailboxes of silent workers that one asking looks for."""
_NOT_FOUND = 404
_JSON = "application/json"


def _connection(link: WorkersLink, seconds: float) -> kombu.Connection:
    """Returns a connection that is not open yet; each wait for the server ends after these seconds."""
    return (_over_amqp if link.kind == "amqp" else _over_redis)(link, seconds)


def _over_amqp(link: WorkersLink, seconds: float) -> kombu.Connection:
    tls: Any = False
    if link.tls is not None:
        tls = {"ca_certs": link.tls.ca or None, "certfile": link.tls.cert or None, "keyfile": link.tls.key or None}
        tls |= {"cert_reqs": 0} if link.tls.insecure else {"cert_reqs": 2, "server_hostname": link.host}
    return kombu.Connection(
        hostname=link.host,
        port=link.port,
        userid=link.username,
        password=link.password,
        virtual_host=link.virtual_host,
        ssl=tls,
        connect_timeout=seconds,
        transport=pyamqp.Transport,
        transport_options={"read_timeout": seconds, "write_timeout": seconds},
    )


def _over_redis(link: WorkersLink, seconds: float) -> kombu.Connection:
    from hpad_adapters.celery import kombu_redis  # needs redis-py, which the extra `redis` brings

    tls: Any = False
    if link.tls is not None:
        tls = {"ssl_cert_reqs": "required", "ssl_check_hostname": True, "ssl_ca_certs": link.tls.ca or None}
        tls |= {"ssl_certfile": link.tls.cert or None, "ssl_keyfile": link.tls.key or None}
        tls |= {"ssl_cert_reqs": "none", "ssl_check_hostname": False} if link.tls.insecure else {}
    return kombu.Connection(
        hostname=link.host,
        port=link.port,
        userid=link.username or None,
        password=link.password or None,
        virtual_host=link.virtual_host,
        ssl=tls,
        transport=kombu_redis.Transport,
        transport_options={
            **link.options,
            # Without this, kombu hands out tasks again that workers hold for longer than its own visibility_timeout.
            "ack_emulation": False,
            "socket_timeout": seconds,
            "socket_connect_timeout": seconds,
            "retry_on_timeout": False,
        },
    )


class Heard(msgspec.Struct, frozen=True):
    """The answers. `none`: no worker listens. `gone`: workers of those known before that listen no more."""

    gathered: Gathered
    none: bool = False
    gone: frozenset[str] = frozenset()


class Asking:
    """Asks once.

    `known`: the names of the workers that are expected to answer; `stopped`: whether the answer is no longer needed.
    """

    def __init__(
        self, link: WorkersLink, seconds: float, known: Collection[str], context: Context, stopped: Callable[[], bool]
    ) -> None:
        self._link = link
        self._now = context.clock.now
        self._monotonic = context.clock.monotonic
        self._seconds = seconds
        self._deadline = self._monotonic() + seconds
        self._known = frozenset(known)
        self._stopped = stopped
        self._tickets = {str(uuid.uuid4()): command for command in COMMANDS}
        self._gathered = Gathered()
        self._received = self._bytes = 0
        self._last = 0.0
        self._returned = False

    @contextlib.contextmanager
    def heard(self) -> Iterator[Heard]:
        """Asks, and yields the answers before it closes the connection. Raises AdapterError."""
        with contextlib.ExitStack() as stack:
            try:
                answers = self._asked(stack)
            except AdapterError:
                raise
            except Exception as error:  # noqa: BLE001  # the libraries raise many kinds, and any for malformed frames
                raise AdapterError(f"{self._link.name} {described(error, self._seconds)}") from None
            yield answers

    def _asked(self, stack: contextlib.ExitStack) -> Heard:
        for file in self._link.tls.files if self._link.tls is not None else ():
            Path(file).open("rb").close()  # the error of ssl does not name the file
        transport = _connection(self._link, self._seconds).transport
        # Without the retries of kombu.Connection, which sleep for seconds.
        opened = transport.establish_connection()
        stack.callback(_quietly, lambda: transport.close_connection(opened))
        channel = transport.create_channel(opened)
        if not self._exists(channel):
            return Heard(self._gathered, none=True)
        queue = self._reply_queue(channel)
        stack.callback(_quietly, queue.delete)
        consumer = kombu.Consumer(channel, [queue], no_ack=True, on_message=self._take, auto_declare=False)
        consumer.consume()
        stack.callback(_quietly, consumer.cancel)
        self._publish(channel, queue)
        gone = self._listen(transport, opened, channel)
        none = self._returned or getattr(channel, "listeners", None) == 0
        return Heard(self._gathered, none=none, gone=gone)

    def _exists(self, channel: Any) -> bool:
        """Declares the exchange of the remote control on Redis; on RabbitMQ returns whether a worker ever did."""
        exchange = f"{self._link.exchange}.pidbox"
        if self._link.kind == "redis":
            channel.exchange_declare(exchange=exchange, type="fanout", durable=False)
            return True
        try:
            channel.exchange_declare(exchange=exchange, type="fanout", passive=True)
        except channel.connection.channel_errors as error:
            if getattr(error, "code", 0) != _NOT_FOUND:
                raise
            return False
        return True

    def _reply_queue(self, channel: Any) -> Any:
        """Declares the queue for answers. On RabbitMQ it needs no exchange, so that late answers are dropped."""
        key = f"hpad-{uuid.uuid4()}"
        exchange = "" if self._link.kind == "amqp" else f"reply.{self._link.exchange}.pidbox"
        queue = kombu.Queue(
            f"{key}.reply.{self._link.exchange}.pidbox",
            kombu.Exchange(exchange, type="direct", durable=False),
            routing_key=key,
            durable=False,
            exclusive=True,
            auto_delete=True,
            queue_arguments={"x-max-length-bytes": MOST_BYTES} if self._link.kind == "amqp" else None,
        )(channel)
        queue.declare()
        return queue

    def _publish(self, channel: Any, queue: Any) -> None:
        producer = kombu.Producer(channel, serializer="json", auto_declare=False)
        if self._link.kind == "amqp":
            channel.events["basic_return"].add(self._on_return)
        key = queue.name if self._link.kind == "amqp" else queue.routing_key
        for ticket, command in self._tickets.items():
            message = {
                "method": command,
                # The arguments of tasks as text that Celery has cut off.
                "arguments": {"safe": True} if command == "active" else {},
                "destination": None,
                "pattern": None,
                "matcher": None,
                "ticket": ticket,
                "reply_to": {"exchange": queue.exchange.name, "routing_key": key},
            }
            producer.publish(
                message,
                exchange=f"{self._link.exchange}.pidbox",
                routing_key="",
                delivery_mode=1,
                headers={"expires": self._now().timestamp() + self._seconds},
                **({"mandatory": True, "expiration": self._seconds} if self._link.kind == "amqp" else {}),
            )

    def _on_return(self, *_: Any) -> None:
        """The broker returns a message that reaches no mailbox."""
        self._returned = True

    def _take(self, message: Any) -> None:
        """Reads an answer. Raises AdapterError beyond the limits."""
        self._last = self._monotonic()
        self._received += 1
        body = message.body if isinstance(message.body, bytes) else str(message.body).encode()
        self._bytes += len(body)
        if self._received > MOST_REPLIES or self._bytes > MOST_BYTES:
            limit = f"{MOST_REPLIES} answers or {MOST_BYTES >> 20} MiB"
            raise AdapterError(f"{self._link.name}: the workers answer with more than {limit}", alive=True)
        command = self._tickets.get(str((message.headers or {}).get("ticket")))
        if command is not None:
            self._gathered.add(command, body, plain=message.content_type == _JSON)

    def _listen(self, transport: Any, opened: Any, channel: Any) -> frozenset[str]:
        """Waits for the answers; returns the known workers that listen no more."""
        asked, gone, looked = self._monotonic(), frozenset[str](), False
        while (left := self._deadline - self._monotonic()) > 0 and not self._stopped():
            with contextlib.suppress(TimeoutError):
                transport.drain_events(opened, timeout=min(left, _SLICE))
            quiet = self._monotonic() - max(self._last, asked) >= QUIET
            if self._complete(channel, gone, quiet=quiet):
                break
            if quiet and not looked and self._link.kind == "amqp":
                gone, looked = self._without_mailbox(opened), True
        if self._link.kind == "redis" and self._complete(channel, gone, quiet=True):
            return self._known - self._gathered.complete
        return gone

    def _complete(self, channel: Any, gone: Collection[str], *, quiet: bool) -> bool:
        complete = self._gathered.complete
        if self._link.kind == "redis":
            return bool(len(complete) >= channel.listeners)  # PUBLISH says how many it reached
        everyone: bool = complete >= self._known - set(gone)
        return self._returned or (quiet and bool(complete) and everyone)

    def _without_mailbox(self, opened: Any) -> frozenset[str]:
        """Returns the silent ones of the known workers whose mailbox is gone: they have ended."""
        return frozenset(
            name for name in sorted(self._known - self._gathered.complete)[:_MOST_PROBED] if self._ended(opened, name)
        )

    def _ended(self, opened: Any, name: str) -> bool:
        channel: Any = opened.channel()
        try:
            channel.queue_declare(queue=f"{name}.{self._link.exchange}.pidbox", passive=True)
        except opened.channel_errors as error:
            # A mailbox that another connection owns exclusively is refused with another code.
            return bool(getattr(error, "code", 0) == _NOT_FOUND)
        channel.close()
        return False


def _quietly(close: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        close()


def described(error: BaseException, seconds: float) -> str:
    """Returns what is wrong with the broker: the end of a sentence that begins with its name."""
    for cause in (error, error.__cause__, error.__context__):
        if isinstance(cause, OSError) and cause.filename:
            return f"cannot be asked: ca, cert or key: {cause.filename} cannot be used: {cause.strerror}"
        if isinstance(cause, TimeoutError | BlockingIOError):
            return f"did not answer within {seconds:g}s"
        if isinstance(cause, OSError | EOFError):
            return failure(cause)
    if type(error).__module__.partition(".")[0] in ("amqp", "redis"):
        return f"refuses: {shown((getattr(error, 'reply_text', '') or str(error))[:300])}"
    return f"cannot be used by kombu ({reason(error)})"
