"""The servers of one source, each of which could answer, in the order in which they are asked."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from hpad.adapter import AdapterError

Server = TypeVar("Server")
Answered = TypeVar("Answered")
ServerFault = TypeVar("ServerFault", bound=Exception)


class Servers(Generic[Server]):
    """The servers in their order: the one that answered comes first, and those that failed or hang last."""

    def __init__(self, servers: Iterable[Server]) -> None:
        self._order = list(servers)

    @property
    def order(self) -> tuple[Server, ...]:
        """The servers, the next one first."""
        return tuple(self._order)

    async def ask(
        self,
        attempt: Callable[[Server], Awaitable[Answered]],
        fault: type[ServerFault],
        failed: Callable[[list[ServerFault]], Exception],
    ) -> Answered:
        """Returns the first answer. Raises `failed` of the faults of all servers, and what else `attempt` raises."""
        faults: list[ServerFault] = []
        for server in self.order:
            try:
                answer = await attempt(server)
            except asyncio.CancelledError:
                if not faults:  # else it had only the time that another server left it
                    self.put_last(server)
                raise
            except fault as error:
                self.put_last(server)
                faults.append(error)
                continue
            self._order.remove(server)
            self._order.insert(0, server)
            return answer
        raise failed(faults)

    def put_last(self, server: Server) -> None:
        """Lets the next call begin with another server: this one may hang for as long as a call may take."""
        self._order.remove(server)
        self._order.append(server)


def none_answered(faults: Iterable[AdapterError]) -> AdapterError:
    """Returns one error for those of all servers."""
    return AdapterError("; ".join(each.message for each in faults))
