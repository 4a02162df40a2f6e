"""What a candidate or a member makes known: to those in this process who act on it, and to whoever reads the log."""

from collections.abc import Awaitable, Callable
from typing import Any

from hpad.kube import errors


class Bulletin:
    """Fed by whoever stands for election or has a share; `log` is their logger.

    `trouble` is what is wrong now, None where nothing is; `agreed`: it has been known at some time who acts.
    """

    def __init__(self, log: Any) -> None:
        self.trouble: str | None = None
        self.agreed = False
        self._log = log
        self._readers: list[Callable[[], None]] = []
        self._said: str | None = None

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have it called whenever there is a `change`."""
        self._readers.append(callback)

    def change(self) -> None:
        """What is ours has changed."""
        for callback in self._readers:
            callback()

    def say(self, text: str, *, trouble: bool = False) -> None:
        """Say how things stand: once, until it is something else."""
        self.trouble = text if trouble else None
        if text != self._said:
            self._said = text
            (self._log.warning if trouble else self._log.info)(text)

    def ended(self, text: str, why: str, *, as_wanted: bool) -> None:
        """Nothing is ours any more: a warning, unless that is as it should be; how things stand is news again."""
        self._said = None
        (self._log.info if as_wanted else self._log.warning)(text, why=why)
        self.change()

    async def release(self, give_up: Callable[[], Awaitable[object]]) -> None:
        """Give a Lease up, as far as the API server lets us."""
        try:
            await give_up()
        except errors.ApiError as error:
            self._log.warning("our Lease was not released; it expires by itself", error=error.message)
