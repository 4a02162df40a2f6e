"""The answers of the plugin rabbitmq_prometheus: the numbers of each node, by family of metrics and vhost.

A node answers with what its own tables hold, and never with the numbers of another node: a queue is counted on the node
of its leader, and what happens in a channel on the node of the channel. So all nodes are asked. Which one answers
stands in `rabbitmq_identity_info`; an address that stands for several nodes, such as that of a load balancer, is
refused, because a part of the numbers would be missing or count twice.

Source: rabbitmq_prometheus, "Metrics from /metrics/detailed": families, and the filters `family` and `vhost`. RabbitMQ
has them from 3.10 on.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from urllib.parse import urlencode

import msgspec

from hpad.adapter import AdapterError, Context
from hpad.adapter_http import Http, HttpOptions, Request, RequestFailedError, Response, TooLargeError, first_line
from hpad_adapters import exposition
from hpad_adapters.exposition import ExposedSample

PREFIX = "rabbitmq_detailed_"
"""What the names of the series of a family begin with."""
FRESH_SECONDS = 1.0
"""The time for which an answer serves further calls: those of one batch, and of batches that begin together."""
MIXED_SECONDS = 600.0
"""The time for which an address that has answered as two nodes is refused."""
PEERS_SECONDS = 60.0
"""The time for which the peers of a node are remembered: a request for them costs the broker more than others."""
_IDENTITY = "rabbitmq_identity_info"
_PEERS = "erlang_vm_dist_node_state"
_CONNECTED = 3
_UNREACHABLE = "rabbitmq_unreachable_cluster_peers_count"
_TOOLS = "rabbitmqcli-"
"""What the names of command line tools begin with, which are peers while they run."""
_ACCEPT = {"Accept": "text/plain;version=0.0.4"}


class NodeMetrics(msgspec.Struct, frozen=True):
    """What one node answers: its name, such as "rabbit@a", and the samples by the name of the series.

    `declared`: the names of all series that the node's version has in these families, also of those without a sample.
    `at`: the monotonic time of the answer, in seconds. `unread`: a line of a queue that cannot be read, "" if all can:
    RabbitMQ 3 writes the quotes and backslashes of a name as they are.
    """

    node: str
    series: Mapping[str, Sequence[ExposedSample]]
    declared: frozenset[str]
    at: float = 0.0
    unread: str = ""

    def of(self, name: str) -> Sequence[ExposedSample]:
        """Returns the samples of a series, such as "queue_consumers"; none where there are none."""
        return self.series.get(f"{PREFIX}{name}", ())

    def has(self, name: str) -> bool:
        """Returns whether the node's version has a series, such as "queue_consumers"."""
        return f"{PREFIX}{name}" in self.declared


NodeAnswer = NodeMetrics | AdapterError


class ClusterPeers(msgspec.Struct, frozen=True):
    """The other nodes with which a node is connected, and how many of its cluster it does not reach.

    `unreachable` is 0 for versions that do not report it, such as 3.10.
    """

    names: frozenset[str]
    unreachable: int


class Plugin:
    """The plugin on the nodes of one broker. `urls`: one address for each node, without a path."""

    def __init__(self, urls: Sequence[str], options: HttpOptions, context: Context) -> None:
        self._http = Http(context, options)
        self._monotonic = context.clock.monotonic
        self._nodes = [_Node(url, self._http, self._monotonic) for url in urls]
        self._read: dict[str, _Shared] = {}
        self._peers: tuple[float, ClusterPeers] | None = None

    def __str__(self) -> str:
        return _named(self._nodes[0].url)

    async def scrape(self, families: Collection[str], vhost: str = "") -> list[NodeMetrics]:
        """Returns what each node answers; `vhost` "" stands for all.

        Raises AdapterError, which names them, if one address or more gave no answer.
        """
        return complete(await self.nodes(families, vhost))

    async def nodes(self, families: Collection[str], vhost: str = "") -> list[NodeAnswer]:
        """Returns the answer of each address, or its error. Calls with equal arguments share an answer for a second."""
        parameters = [("family", family) for family in sorted(families)]
        query = urlencode([*parameters, ("vhost", vhost)] if vhost else parameters)
        now = self._monotonic()
        self._read = {key: each for key, each in self._read.items() if each.lock.locked() or each.fresh(now)}
        return await self._read.setdefault(query, _Shared()).get(lambda: self._asked(query), self._monotonic)

    async def peers(self, answers: Sequence[NodeAnswer]) -> ClusterPeers:
        """Returns the peers of the first node that answered; remembered for a minute. Raises AdapterError."""
        if self._peers is None or self._monotonic() - self._peers[0] >= PEERS_SECONDS:
            node = next(node for node, each in zip(self._nodes, answers, strict=True) if isinstance(each, NodeMetrics))
            self._peers = self._monotonic(), await node.peers()
        return self._peers[1]

    async def _asked(self, query: str) -> list[NodeAnswer]:
        answers = await asyncio.gather(*(node.answer(query) for node in self._nodes))
        return _each_once([node.url for node in self._nodes], answers)


def complete(answers: Sequence[NodeAnswer]) -> list[NodeMetrics]:
    """Returns the answers; raises AdapterError with the errors if there are any."""
    errors = [each for each in answers if isinstance(each, AdapterError)]
    if errors:
        text = "; ".join(dict.fromkeys(each.message for each in errors))
        raise AdapterError(text, lasting=all(each.lasting for each in errors), alive=len(errors) < len(answers))
    return [each for each in answers if isinstance(each, NodeMetrics)]


def _each_once(urls: Sequence[str], answers: Sequence[NodeAnswer]) -> list[NodeAnswer]:
    """Returns the answers; of two addresses of one node, the second one is an error."""
    found, addresses = list[NodeAnswer](), dict[str, str]()
    for url, each in zip(urls, answers, strict=True):
        if isinstance(each, NodeMetrics) and addresses.setdefault(each.node, url) != url:
            text = f"{_named(url)} is node {each.node}, as {addresses[each.node]} is: write one address for each node"
            found.append(AdapterError(text, alive=True))
        else:
            found.append(each)
    return found


class _Shared:
    """One answer for several calls."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._at = -math.inf
        self._answers: list[NodeAnswer] = []

    def fresh(self, now: float) -> bool:
        return now - self._at < FRESH_SECONDS

    async def get(self, ask: Callable[[], Awaitable[list[NodeAnswer]]], now: Callable[[], float]) -> list[NodeAnswer]:
        async with self.lock:
            if not self.fresh(now()):
                self._answers = await ask()
                self._at = now()
            return self._answers


class _Node:
    """One address."""

    def __init__(self, url: str, http: Http, monotonic: Callable[[], float]) -> None:
        self.url = url
        self._http = http
        self._monotonic = monotonic
        self._name = ""
        self._mixed = ""
        self._mixed_at = -math.inf

    async def answer(self, query: str) -> NodeAnswer:
        try:
            found = await asyncio.to_thread(_parsed, await self._body(f"/metrics/detailed?{query}"), self.url)
        except TooLargeError as error:
            return error
        except RequestFailedError as error:
            text = f"{error.message}: its plugin rabbitmq_prometheus must be enabled, and its port open to hpad"
            return AdapterError(text, lasting=error.lasting, alive=error.alive)
        except AdapterError as error:
            return error
        return self._mixed_error(found.node) or msgspec.structs.replace(found, at=self._monotonic())

    async def peers(self) -> ClusterPeers:
        return await asyncio.to_thread(_peers, await self._body("/metrics"), self.url)

    async def _body(self, path: str) -> bytes:
        request = Request(url=f"{self.url}{path}", name=_named(self.url), headers=_ACCEPT)
        return _checked(await self._http.send(request), self.url)

    def _mixed_error(self, node: str) -> AdapterError | None:
        """Notes which node answered; returns the error of an address that stands for several."""
        now = self._monotonic()
        if self._name and node != self._name:
            self._mixed, self._mixed_at = f"{self._name} and as {node}", now
        self._name = node
        if now - self._mixed_at >= MIXED_SECONDS:
            return None
        text = f"{_named(self.url)} answers as {self._mixed}, as a load balancer does: write one address for each node"
        return AdapterError(text, alive=True)


def _named(url: str) -> str:
    return f"rabbitmq_prometheus at {url}"


def _checked(response: Response, url: str) -> bytes:
    """Returns the body of a good answer; raises AdapterError."""
    status, name = response.status, _named(url)
    if status in (401, 403):
        raise AdapterError(f"{name} refused the user ({status}): configure username and password_file", lasting=True)
    if status in (404, 406):  # the management API answers 406 to the path of the plugin
        raise AdapterError(
            f"{name} answers {status}: it has no /metrics/detailed, which RabbitMQ has from 3.10 on, or this is not "
            "the address of the plugin (port 15692)",
            lasting=True,
        )
    if status != 200:
        raise AdapterError(f"{name} answers {status}{first_line(response.body)}")
    return response.body


def _parsed(body: bytes, url: str) -> NodeMetrics:
    """Returns the numbers of a node; raises AdapterError. Takes some milliseconds per thousand lines."""
    unread = list[str]()

    def odd(line: str, error: ValueError) -> None:
        """Notes the line of a queue, whose name its user chose; raises the error of another line."""
        if not line.startswith(PREFIX):
            raise error
        unread.append(str(error))

    series, lines = _series(body, url, lambda name: name.startswith("rabbitmq_"), odd)
    nodes = [sample.labels.get("rabbitmq_node", "") for sample in series.pop(_IDENTITY, [])]
    if len(nodes) != 1 or not nodes[0]:
        raise AdapterError(f"{_named(url)} does not say which node it is ({_IDENTITY}): is it another server?")
    declared = (line.split(" ", 3) for line in lines if line.startswith("# TYPE "))
    names = frozenset(words[2] for words in declared if len(words) == 4)
    return NodeMetrics(nodes[0], series, names, unread=next(iter(unread), ""))


def _peers(body: bytes, url: str) -> ClusterPeers:
    series, _ = _series(body, url, (_PEERS, _UNREACHABLE).__contains__)
    connected = (each.labels.get("peer", "") for each in series.get(_PEERS, ()) if each.value == _CONNECTED)
    unreachable = sum(int(each.value) for each in series.get(_UNREACHABLE, ()) if math.isfinite(each.value))
    return ClusterPeers(frozenset(name for name in connected if not name.startswith(_TOOLS)), unreachable)


def _series(
    body: bytes, url: str, wanted: Callable[[str], bool], odd: Callable[[str, ValueError], None] | None = None
) -> tuple[dict[str, list[ExposedSample]], Sequence[str]]:
    """Returns the samples by name, and all lines; raises AdapterError."""
    series: dict[str, list[ExposedSample]] = {}
    try:
        lines = body.decode().split("\n")
        for name, sample in exposition.samples(lines, wanted, odd):
            series.setdefault(name, []).append(sample)
    except ValueError as error:
        text = str(error) if not isinstance(error, UnicodeError) else "it is not UTF-8"
        raise AdapterError(f"{_named(url)} answers something other than metrics: {text}") from None
    return series, lines
