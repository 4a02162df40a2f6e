"""Other writers of the HPAs that are reconciled: looked up each turn, reported when they come and go."""

import structlog

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.control.world import World
from hpad.engine.view import HPA, STATUS, Competitor, Withheld, yielded
from hpad.telemetry import Telemetry


class Competing:
    """Remembers which writers have been reported of each HPA."""

    def __init__(self, world: World, telemetry: Telemetry) -> None:
        self._world = world
        self._telemetry = telemetry
        self._reported: dict[Key, tuple[Competitor, ...]] = {}
        self._log = structlog.get_logger("hpad.reconcile")

    def of(self, hpa: HorizontalPodAutoscaler, *, writes_status: bool) -> tuple[Competitor, ...]:
        """The other writers of what hpad writes for this HPA; nobody competes for a status that hpad never writes."""
        found = self._world.competitors(hpa)
        return found if writes_status else tuple(each for each in found if each.what != STATUS)

    def report(self, key: Key, found: tuple[Competitor, ...], *, yields: bool) -> None:
        """Set the series of the writers, and log them when they differ from those before."""
        self._telemetry.competing(key, [(each.what, each.name) for each in found])
        if found == self._reported.get(key, ()):
            return
        if not found:
            del self._reported[key]
            self._log.info("no other writer is seen any more", hpa=str(key))
            return
        self._reported[key] = found
        withheld = yields and yields_to(found) is not None
        what = "another writer competes; hpad does not scale the target" if withheld else "another writer competes"
        self._log.warning(f"{what}: {'; '.join(map(str, found))}", hpa=str(key))

    def forget(self, key: Key) -> None:
        self._reported.pop(key, None)


def yields_to(found: tuple[Competitor, ...]) -> Withheld | None:
    """Why the target is left to another HPA, None where there is no other."""
    other = next((each for each in found if each.what == HPA), None)
    return None if other is None else yielded(other)
