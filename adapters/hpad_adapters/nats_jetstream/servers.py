"""The servers of a cluster, and what each of them says about the streams of an account.

Source: NATS, "Monitoring": /jsz and /varz.
"""

import asyncio
import ipaddress
import socket
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from hpad.adapter import AdapterError, or_error
from hpad.adapter_http import Http, Request, decoded, failure, first_line

_MOST_SERVERS: Final = 32
HEADLESS: Final = "name each server of the cluster in url, or its headless Service"
_PORTS: Final = {"http": 80, "https": 443}


class _Cluster(msgspec.Struct, frozen=True):
    leader: str = ""


class NatsConsumer(msgspec.Struct, frozen=True):
    """The state of a consumer as one server knows it; `cluster` is absent without a cluster."""

    name: str
    num_pending: int
    num_ack_pending: int
    cluster: _Cluster | None = None


class _State(msgspec.Struct, frozen=True):
    messages: int


class NatsStream(msgspec.Struct, frozen=True):
    """The state of a stream as one server knows it."""

    name: str
    state: _State
    cluster: _Cluster | None = None
    consumer_detail: tuple[NatsConsumer, ...] | None = ()


class Account(msgspec.Struct, frozen=True):
    """An account. Servers with JWTs know its id besides its name."""

    name: str
    id: str = ""
    stream_detail: tuple[NatsStream, ...] | None = ()


class _Meta(msgspec.Struct, frozen=True):
    cluster_size: int = 1


class _JetStream(msgspec.Struct, frozen=True):
    server_id: str
    meta_cluster: _Meta | None = None
    disabled: bool = False
    accounts: int = 0
    account_details: tuple[Account, ...] = ()


class _Server(msgspec.Struct, frozen=True):
    server_id: str
    server_name: str


_JSZ: Final = msgspec.json.Decoder(_JetStream)
_VARZ: Final = msgspec.json.Decoder(_Server)


class Reply(msgspec.Struct, frozen=True):
    """What one server says: its name in the cluster, and the account, None if it has none of that name or id.

    size: the number of servers in its cluster. more: it has accounts that it does not list, and one of these may be it.
    """

    server: str
    account: Account | None
    disabled: bool
    size: int
    more: bool


class NatsServers:
    """Asks all servers of a cluster at once. `server_name`: that of their certificates, "" for the host of the URL."""

    def __init__(self, urls: Sequence[str], http: Http, server_name: str) -> None:
        self._urls = urls
        self._http = http
        self._server_name = server_name
        self._names: dict[str, str] = {}

    async def replies(self, account: str) -> list[Reply | AdapterError]:
        """Returns the reply or the error of each server; at least one."""
        found = await asyncio.gather(*(or_error(self._resolved, url) for url in self._urls))
        errors = [each for each in found if isinstance(each, AdapterError)]
        requests = [request for each in found if not isinstance(each, AdapterError) for request in each]
        replies = await asyncio.gather(*(or_error(self._read, request, account) for request in requests))
        return [*replies, *errors]

    async def _resolved(self, url: str) -> Sequence[Request]:
        """Returns a request without a path to each address that the host of a URL resolves to."""
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        addresses = [] if _is_address(host) else await _lookup(host, port, url)
        if len(addresses) <= 1:
            return [Request(url=url, name=f"NATS {url}")]
        if len(addresses) > _MOST_SERVERS:
            raise AdapterError(f"NATS {url} resolves to more than {_MOST_SERVERS} addresses", lasting=True)
        return [
            Request(
                url=parts._replace(netloc=f"[{each}]:{port}" if ":" in each else f"{each}:{port}").geturl(),
                name=f"NATS {url} ({each})",
                headers={"Host": parts.netloc},
                server_name=self._server_name or host,
            )
            for each in addresses
        ]

    async def _read(self, server: Request, account: str) -> Reply:
        # The answer has all accounts, at most 1,024, if none has this id: one with a JWT has a key as its id, and a
        # name beside it.
        query = urllib.parse.urlencode({"acc": account, "accounts": "true", "consumers": "true"})
        body = await self._body(server, f"/jsz?{query}")
        # The answer holds all consumers of the account.
        found = await asyncio.to_thread(decoded, _JSZ, body, server.name, "the state of JetStream")
        name = self._names.get(found.server_id)
        if name is None:
            varz = decoded(_VARZ, await self._body(server, "/varz"), server.name, "the state of a NATS server")
            # Servers get a new id at each start.
            self._names = {**dict(list(self._names.items())[-_MOST_SERVERS:]), varz.server_id: varz.server_name}
            if varz.server_id != found.server_id:  # the numbers of a follower would be taken for those of the leader
                raise AdapterError(f"{server.name} is now one server, now another: {HEADLESS}", alive=True)
            name = varz.server_name
        own = next((each for each in found.account_details if account in (each.name, each.id)), None)
        size = found.meta_cluster.cluster_size if found.meta_cluster is not None else 1
        more = own is None and 0 < len(found.account_details) < found.accounts
        return Reply(name, own, found.disabled, size, more)

    async def _body(self, server: Request, path: str) -> bytes:
        response = await self._http.send(msgspec.structs.replace(server, url=f"{server.url}{path}"))
        if response.status != 200:
            raise AdapterError(f"{server.name} answers {response.status}{first_line(response.body)}")
        return response.body


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _lookup(host: str, port: int, url: str) -> list[str]:
    """Returns the addresses of a host, of one family, sorted; raises AdapterError."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AdapterError(f"NATS {url} {failure(error)}") from None
    families = {family for family, *_ in found}
    family = socket.AF_INET if socket.AF_INET in families else socket.AF_INET6
    return sorted({str(address[0]) for kind, _, _, _, address in found if kind == family})


def streams(replies: Sequence[Reply], name: str) -> Iterator[tuple[str, NatsStream]]:
    """Yields what each server says about a stream."""
    for reply in replies:
        for stream in (reply.account.stream_detail or ()) if reply.account is not None else ():
            if stream.name == name:
                yield reply.server, stream


def consumers(found: Sequence[tuple[str, NatsStream]], name: str) -> Iterator[tuple[str, NatsConsumer]]:
    """Yields what each server says about a consumer of a stream."""
    for server, stream in found:
        for consumer in stream.consumer_detail or ():
            if consumer.name == name:
                yield server, consumer


def of_leader(found: Mapping[str, NatsStream | NatsConsumer]) -> tuple[NatsStream | NatsConsumer | None, str]:
    """Returns the state that the leader reports, by the servers' names, and the name of the leader.

    Followers have other numbers: those of the last time that they led.
    """
    leaders = [state.cluster.leader if state.cluster is not None else server for server, state in found.items()]
    for (server, state), leader in zip(found.items(), leaders, strict=True):
        if server == leader:
            return state, server
    return None, next(filter(None, leaders), "")
