"""The state of hpad: readiness, problems, and one sentence for systemd and the status page."""

import asyncio
from collections.abc import Callable

from hpad import __version__
from hpad.daemon.assembly import Components
from hpad.serve import page
from hpad.settings import Settings
from hpad.store import persistent

WAITING = "waiting for the cluster and the HPAs"


class Status:
    """Reads the components. `settings` returns the settings in force; `started` is set once the controller runs."""

    def __init__(self, components: Components, settings: Callable[[], Settings], started: asyncio.Event) -> None:
        self._components = components
        self._settings = settings
        self._started = started

    def sentence(self) -> str:
        """Returns one sentence on the activity of hpad, with the first problem."""
        problem = self.problems()[:1]
        if not self._started.is_set():
            return ": ".join(["Waiting for the cluster and the HPAs", *problem])
        return "; ".join([self._activity(), *problem])

    def mode(self) -> page.Mode:
        """Returns the head of the status page."""
        coordinator, settings = self._components.coordinator, self._settings()
        facts = (
            "no leader election" if coordinator is None else coordinator.role,
            "HPAs of the API server"
            if settings.manifests is None
            else f"HPAs of the manifests in {settings.manifests}",
            f"version {__version__}",
        )
        return page.Mode(doing=self._activity(), facts=facts, dry_run=settings.dry_run)

    def unready(self) -> list[str]:
        """Returns the reasons why hpad is not ready; none if it is.

        A standby replica is ready. A cluster that is lost later does not make hpad unready
        again.
        """
        if not self._started.is_set():
            return [WAITING, *self.problems()]
        coordinator = self._components.coordinator
        # A replica that has never read the Lease could not take over.
        if coordinator is None or coordinator.holder_known or not coordinator.trouble:
            return []
        return [coordinator.trouble]

    def problems(self) -> list[str]:
        """Returns problems with watches, the Lease, the store and manifest files, one sentence each."""
        coordinator, store, files = self._components.coordinator, self._components.store, self._components.folder
        found = list(self._components.cluster.troubles)
        if coordinator is not None and coordinator.trouble is not None:
            found.append(coordinator.trouble)
        if isinstance(store, persistent.PersistentStore) and store.trouble is not None:
            found.append(f"a restart would lose the state of the HPAs: {store.trouble}")
        if files is not None:
            found += [files.trouble] if files.trouble else []
            found += [problem.at(file) for file, problems in files.errors.items() for problem in problems]
        return [text.encode("utf-8", "backslashreplace").decode() for text in found]  # file names are arbitrary bytes

    def _activity(self) -> str:
        coordinator = self._components.coordinator
        count = len(self._components.hpas.keys())
        if coordinator is not None:
            return coordinator.describe(count)
        verb = "Deciding for" if self._settings().dry_run else "Scaling by"
        return f"{verb} {count} HPA{'' if count == 1 else 's'}"
