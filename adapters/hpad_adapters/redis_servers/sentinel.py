"""The master that Redis Sentinel watches.

Source: Redis, "Guidelines for Redis clients with support for Redis Sentinel": ask one sentinel after the other for the
address, connect to it, and verify the role with ROLE.
"""

from collections.abc import Sequence

from hpad.adapter import AdapterError, shown
from hpad_adapters.redis_servers.connection import Access, Request, Session
from hpad_adapters.redis_servers.replies import Reply, ReplyError
from hpad_adapters.redis_servers.settings import SENTINEL_PORT, Address, address, named
from hpad_adapters.redis_servers.settings import Sentinel as SentinelSettings

NODE_SECONDS = 1.0
"""How long one sentinel may take before the next one is asked."""


class SentinelMaster:
    """Asks a sentinel for the address of the master in each batch, so that a failover needs no detection."""

    def __init__(self, settings: SentinelSettings, access: Access, sentinels: Access) -> None:
        self.name = f'Redis master "{settings.master}"'
        self._settings = settings
        self._access = access
        self._sentinels = sentinels
        self._nodes = [address(node, SENTINEL_PORT) for node in settings.nodes]

    async def ask(self, requests: Sequence[Request]) -> list[list[Reply] | AdapterError]:
        """Returns the replies to each request; raises AdapterError if neither sentinels nor master answer."""
        at = await self._address()
        session = await self._access.session(("SELECT", str(self._settings.database)))
        commands = [command for request in requests for command in request.commands]
        role, *replies = await session.exchange(at, (("ROLE",), *commands))
        self._check_role(at, role)
        remaining = iter(replies)
        return [[next(remaining) for _ in request.commands] for request in requests]

    async def _address(self) -> Address:
        """Returns the address of the master by the first sentinel that knows it, asked first from then on."""
        session = await self._sentinels.session()
        errors = []
        for node in tuple(self._nodes):
            try:
                found = await self._asked(session, node)
            except AdapterError as error:
                errors.append(error.message)
                continue
            self._nodes.remove(node)
            self._nodes.insert(0, node)
            return found
        raise AdapterError("; ".join(errors))

    async def _asked(self, session: Session, node: Address) -> Address:
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._settings.master)
        (reply,) = await session.exchange_within(NODE_SECONDS, node, (command,))
        where = f"{self._sentinels.kind} {node}"
        if reply is None:
            raise AdapterError(f"{where} knows no master {shown(self._settings.master)}")
        if isinstance(reply, ReplyError):
            raise AdapterError(f"{where} refuses: {reply}")
        match reply:
            case [str(host), str(port)] if (found := named(host, port)) is not None:
                return found
        raise AdapterError(f"{where} did not name the address of the master")

    def _check_role(self, at: Address, role: Reply) -> None:
        """Raises AdapterError unless the server is a master, or its ACL denies ROLE to the user."""
        match role:
            case ["master", *_] | ReplyError():
                return
            case [str(other), *_]:
                raise AdapterError(f"{self.name}: {at} is a {other[:40]}, not the master: a failover is under way")
        raise AdapterError(f"{self.name}: {at} did not answer to ROLE")
