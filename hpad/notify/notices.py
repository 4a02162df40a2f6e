"""Keeps what is known of each HPA, and hands messages to the destinations. Never waits in a reconcile."""

import asyncio
from typing import Final

from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.engine.turn import Reconcile
from hpad.notify.causes import NOTHING, Known, NoticeChange, changes
from hpad.notify.sender import NoticeSender
from hpad.notify.texts import Notice, Sender
from hpad.settings.notify import NotifySettings
from hpad.telemetry.series import NotifySeries

STOP_SECONDS: Final = 2.0
"""How long messages that wait are still sent when hpad stops, or a destination is removed."""


class Notices:
    """Notes each reconcile (a recorder of the controller), and runs the senders of the settings.

    What is known of an HPA is lost when hpad ends or another replica leads: a condition that still holds is told again
    after its time.
    """

    def __init__(self, settings: NotifySettings, clock: Clock, series: NotifySeries) -> None:
        self._clock = clock
        self._series = series
        self._known: dict[Key, Known] = {}
        self._started = False
        self._retiring: set[asyncio.Task[None]] = set()
        self._senders: dict[str, NoticeSender] = {}
        self.retune(settings)

    def note(self, done: Reconcile) -> None:
        """Finds what this reconcile begins and ends, and queues it. An HPA in shadow mode, which writes nothing, tells
        nothing."""
        if not self._senders or done.view.shadow is not None:
            return
        key = done.view.key
        before = self._known.get(key, NOTHING)
        now, found = changes(done, before, self._clock.monotonic(), self._causes, self._after)
        if now:
            self._known[key] = now
        elif before:
            del self._known[key]
        for change in found:
            self._tell(done, change)

    def forget(self, key: Key) -> None:
        """Drops what is known of an HPA that was deleted."""
        self._known.pop(key, None)

    def clear(self) -> None:
        """Drops what is known of all HPAs: another replica leads."""
        self._known.clear()

    def retune(self, settings: NotifySettings) -> None:
        """Applies changed settings. Destinations that have not changed go on with what waits for them."""
        self._causes, self._after = settings.causes, settings.after
        if not settings.destinations:
            self.clear()
        sender, before, self._senders = Sender(settings.cluster, settings.page), self._senders, {}
        for destination in settings.destinations:
            name, kept = destination.name, before.get(destination.name)
            if kept is not None and (kept.destination, kept.sender) == (destination, sender):
                self._senders[name] = before.pop(name)
            else:
                self._senders[name] = NoticeSender(destination, sender, self._clock, self._series)
                if self._started:
                    self._senders[name].start()
        if self._started:
            for old in before.values():
                task = asyncio.create_task(old.stop(STOP_SECONDS), name="old destination")
                self._retiring.add(task)
                task.add_done_callback(self._retiring.discard)

    @property
    def troubles(self) -> list[str]:
        """Why messages cannot be sent now, one sentence for each destination."""
        return [
            f"messages to {name} are not sent: {each.trouble}" for name, each in self._senders.items() if each.trouble
        ]

    async def start(self) -> None:
        """Starts the senders."""
        self._started = True
        for sender in self._senders.values():
            sender.start()

    async def stop(self) -> None:
        """Stops the senders within STOP_SECONDS."""
        self._started = False
        await asyncio.gather(*self._retiring, *(each.stop(STOP_SECONDS) for each in self._senders.values()))

    def _tell(self, done: Reconcile, change: NoticeChange) -> None:
        view, target = done.view, done.view.hpa.spec.scale_target_ref
        notice = Notice(
            key=view.key,
            at=view.now,
            change=change,
            target=f"{target.kind}/{target.name}",
            maximum=view.max_replicas,
            is_scheduled=view.max_replicas < view.spec.max_replicas,
            decision=done.decision,
            outcome=done.outcome,
            competitors=view.competitors,
        )
        for sender in self._senders.values():
            if sender.destination.takes(change.cause, view.key.namespace):
                sender.offer(notice)
