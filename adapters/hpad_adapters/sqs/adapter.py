"""The adapter `sqs`: how many messages queues of Amazon SQS have.

Source: Amazon SQS API Reference, GetQueueAttributes: the counts are approximate, and reach consistency within a minute
after the last message was sent. KEDA 2.21, "AWS SQS Queue", counts visible messages and those in flight.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Query, shown
from hpad.adapter_http import Secret, refuse, secret, secret_error, url_error
from hpad_adapters import extras
from hpad_adapters.selection import attempt, labels, no_metric

Count = Literal["visible", "in_flight", "delayed"]

ATTRIBUTES: dict[Count, str] = {
    "visible": "ApproximateNumberOfMessages",
    "in_flight": "ApproximateNumberOfMessagesNotVisible",
    "delayed": "ApproximateNumberOfMessagesDelayed",
}
_ROLE = re.compile(r"arn:[a-z-]+:iam::[0-9]{12}:role/.+")


def _queue_error(queue: str) -> str:
    """Returns why the text is neither the name nor the URL of a queue; "" if it is one."""
    if queue.startswith("arn:"):
        return f"{shown(queue)} is an ARN; write the URL of the queue, or its name, and the account as account"
    return url_error(queue, ("http", "https"), "https://sqs.…/123456789012/jobs") if "/" in queue else ""


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The sum of some counts of a queue.

    queue: the queue's URL, or its name; empty: the selector names it.
    counts: visible (messages that wait), in_flight (received and not deleted yet), delayed (sent with a delay that has
        not passed).
    """

    queue: str = ""
    counts: list[Count] = msgspec.field(default_factory=lambda: ["visible", "in_flight"])

    def __post_init__(self) -> None:
        if not self.counts or len(set(self.counts)) != len(self.counts):
            raise ValueError(f"counts: needs each of {', '.join(ATTRIBUTES)} at most once, and one at least")
        if error := _queue_error(self.queue):
            raise ValueError(f"queue: {error}")


class SqsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Queues of one AWS account in one region.

    region: such as eu-central-1; empty: that of the environment (AWS_REGION) or of the profile.
    metrics: name -> metric that the operator defines, beside sqs_messages (visible and in flight),
        sqs_messages_visible, sqs_messages_in_flight and sqs_messages_delayed, whose selector names the queue.
    queues: the name in a metric's selector -> URL or name of the queue; only_queues: selectors may name these only.
    account: the 12 digits of the account that owns queues named without a URL, if it is not that of the credentials.
    profile: of the AWS configuration files. Without profile and access_key_id the credentials are those of the
        environment, of a web identity (IRSA), of EKS Pod Identity, ECS or EC2, in the order of the AWS SDKs.
    access_key_id: instead of all these; secret_access_key: its secret; secret_access_key_file: a file that holds it,
        read again with each sign-in; secret_access_key_env: an environment variable that holds it.
    role_arn: a role to assume with these credentials; external_id: for it, where its trust policy demands one.
    endpoint_url, sts_endpoint_url: addresses of SQS and of STS, such as that of a VPC endpoint; empty: those of AWS.
    """

    region: str = ""
    metrics: dict[str, Metric] = {}
    queues: dict[str, str] = {}
    only_queues: bool = False
    account: str = ""
    profile: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""
    secret_access_key_file: str = ""
    secret_access_key_env: str = ""
    role_arn: str = ""
    external_id: str = ""
    endpoint_url: str = ""
    sts_endpoint_url: str = ""

    def __post_init__(self) -> None:
        errors = [secret_error(self, "secret_access_key")]
        errors += [_endpoint_error(name, getattr(self, name)) for name in ("endpoint_url", "sts_endpoint_url")]
        if self.access_key_id and not self.secret:
            names = "secret_access_key, secret_access_key_file and secret_access_key_env"
            errors.append(f"access_key_id: needs one of {names}")
        if self.secret and not self.access_key_id:
            errors.append("secret_access_key: needs the access_key_id")
        if self.access_key_id and self.profile:
            errors.append("profile: write either profile or access_key_id")
        errors += [f"queues: {name}: {error}" for name, each in self.queues.items() if (error := _queue_error(each))]
        if self.account and not re.fullmatch(r"[0-9]{12}", self.account):
            errors.append(f"account: {shown(self.account)} is not the number of an account, of 12 digits")
        if self.role_arn and not _ROLE.fullmatch(self.role_arn):
            errors.append(f'role_arn: {shown(self.role_arn)} is not of the form "arn:aws:iam::123456789012:role/name"')
        if self.external_id and not self.role_arn:
            errors.append("external_id: has an effect with role_arn only")
        refuse(*errors)

    def __repr__(self) -> str:
        return f"SqsSettings(region={self.region!r}, metrics={self.metrics!r}, …)"

    @property
    def secret(self) -> Secret:
        """The secret of access_key_id."""
        return secret(self.secret_access_key, self.secret_access_key_file, self.secret_access_key_env)


def _endpoint_error(name: str, url: str) -> str:
    error = url_error(url, ("http", "https"), "https://host") if url else ""
    return f"{name}: {error}" if error else ""


# A thread with an event loop of its own, for a library with asyncio that reads files in coroutines.
#
# The AWS SDK reads service descriptions, configuration files and tokens that way; in hpad's loop they would block it.

T = TypeVar("T")


class LoopThread:
    """Runs coroutines on its thread, which starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of a coroutine that runs on the thread, where a cancellation reaches it too."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._started()))

    async def aclose(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a last coroutine and ends the thread; does nothing if there is none (any more)."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            await self.run(last())
            self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
            self._thread.start()
        return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:  # at its end it cancels what is left
        runner.get_loop().run_forever()


_BUILT_IN: Mapping[str, Metric] = {
    "sqs_messages": Metric(),
    "sqs_messages_visible": Metric(counts=["visible"]),
    "sqs_messages_in_flight": Metric(counts=["in_flight"]),
    "sqs_messages_delayed": Metric(counts=["delayed"]),
}


class Sqs:
    """Messages of Amazon SQS queues; a batch has one request for each queue."""

    serves = frozenset({EXTERNAL})
    metrics: tuple[str, ...] = tuple(_BUILT_IN)
    parameters = ("queue",)
    Settings = SqsSettings

    @staticmethod
    def lacks(settings: SqsSettings) -> str:
        """Returns the package that is missing; "" if none is."""
        return extras.lacks("aiobotocore", "sqs")

    def __init__(self, settings: SqsSettings, context: Context) -> None:
        extras.require("aiobotocore", "sqs")
        self._client: Any = None
        self._context = context
        self._metrics = {**_BUILT_IN, **settings.metrics}
        self.metrics = tuple(self._metrics)
        self._settings = settings
        self._clock = context.clock
        self._worker = LoopThread(f"sqs {context.name}")

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a sample or an error per query; raises AdapterError if there are no credentials."""
        queues = [attempt(self._queue, query) for query in queries]
        wanted = dict.fromkeys(queue for queue in queues if isinstance(queue, str))
        found = await self._worker.run(self._counts(wanted)) if wanted else {}
        return [
            queue if isinstance(queue, AdapterError) else self._sample(query, found[queue])
            for query, queue in zip(queries, queues, strict=True)
        ]

    async def aclose(self) -> None:
        """Closes the connections and ends the thread."""
        await self._worker.aclose(self._close)

    async def _counts(self, queues: Iterable[str]) -> dict[str, dict[str, int] | AdapterError]:
        """Runs on the worker, as `_close` does: even the import of the SDK reads files."""
        if self._client is None:
            self._client = extras.load("hpad_adapters.sqs.client", "sqs").SqsClient(self._settings, self._context)
        found: dict[str, dict[str, int] | AdapterError] = await self._client.counts(queues)
        return found

    async def _close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _queue(self, query: Query) -> str:
        """Returns URL or name of the queue; raises AdapterError."""
        metric = self._metrics.get(query.name)
        if metric is None:
            raise no_metric(query, self._metrics)
        by_label = labels(query, () if metric.queue else ("queue",))
        name = metric.queue or by_label["queue"]
        if not metric.queue and self._settings.only_queues and name not in self._settings.queues:
            raise AdapterError(f'the queue "{name}" is not one of the queues that the configuration allows', "spec")
        if not metric.queue and name not in self._settings.queues and "/" in name:
            raise AdapterError(f'the queue "{name}" is a URL, which the configuration alone may name', "spec")
        return self._settings.queues.get(name, name)

    def _sample(self, query: Query, found: Mapping[str, int] | AdapterError) -> Answer:
        if isinstance(found, AdapterError):
            return found
        total = sum(found[ATTRIBUTES[count]] for count in self._metrics[query.name].counts)
        return ExternalSample((total * 1000,), self._clock.now())
