"""Reads the settings again on SIGHUP, and when a file that they came from has changed.

Files are polled: inotify sees no changes on network file systems, nor in the folder behind a link that is replaced.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from hpad.daemon.app import App
from hpad.daemon.process import Notifier
from hpad.files import Stamps, stamps
from hpad.settings import Settings, SettingsError
from hpad.sources.replacement import SourcesRejected

LOOK_SECONDS: Final = 2.0
"""How often files are looked at. A change is read at the second look that finds it, so that no half-written file is."""


class Reloader:
    """Applies changed settings to the daemon, all of them or none.

    `read` reads the settings; it blocks, and raises SettingsError. `files` are the configuration file and those of the
    HTTP server, as they were before they were first read. `applied` is called with the settings in force after each
    reload that is not rejected.
    """

    def __init__(
        self,
        daemon: App,
        read: Callable[[], Settings],
        files: Stamps,
        *,
        applied: Callable[[Settings], None],
        notifier: Notifier,
    ) -> None:
        self._daemon = daemon
        self._read = read
        self._files = files
        self._applied = applied
        self._notifier = notifier
        self._tried: Stamps = files
        """The files of the last reload, also of a rejected one: it is repeated once one of them changes."""
        self._reloading = asyncio.Lock()
        self._log = structlog.get_logger("hpad.reload")

    async def run(self) -> None:
        """Reloads whenever files have changed, until cancelled. Call it once the daemon has started."""
        self._tried = seen = {**self._files, **self._daemon.components.metrics.current.kept_files()}
        while True:
            await self._daemon.clock.sleep(LOOK_SECONDS)
            found = await asyncio.to_thread(stamps, self._tried)
            if found == seen and found != self._tried:
                await self.reload()
            seen = found

    async def reload(self) -> None:
        """Applies the settings of file, environment and flags as they are now; none of them if they are invalid.

        Logs what is rejected. Does nothing while a file is being written: `run` reads it later. Never raises.
        """
        async with self._reloading:
            with self._notifier.reloading():
                try:
                    await self._reload()
                except Exception as error:  # noqa: BLE001  # a failed reload must not end the daemon
                    self._daemon.rejected = (f"bug: {type(error).__name__}",)
                    self._log.exception("bug: the reload failed with an unexpected exception")

    async def _reload(self) -> None:
        daemon = self._daemon
        self._tried = await asyncio.to_thread(stamps, self._tried)
        if daemon.server is not None:
            await daemon.server.refresh()
        settings = await asyncio.to_thread(self._settings)
        if settings is None:
            return
        try:
            if isinstance(settings, SettingsError):
                raise settings
            await daemon.reload(settings)
        except SettingsError as error:
            self._reject(error)
        except SourcesRejected as error:
            self._tried = {**self._tried, **error.files}  # one of these may have to change
            self._reject(error)
        else:
            kept = daemon.components.metrics.current.kept_files()
            self._tried = {**{file: self._tried[file] for file in self._files}, **kept}
            daemon.rejected = ()
            daemon.telemetry.settings.reloaded("applied")
            self._applied(daemon.settings)

    def _settings(self) -> Settings | SettingsError | None:
        """Returns the settings, or their error; None if a file has changed since it was looked at. Blocks."""
        found: Settings | SettingsError
        try:
            found = self._read()
        except SettingsError as error:
            found = error
        unchanged = stamps(self._files) == {file: self._tried[file] for file in self._files}
        return found if unchanged else None

    def _reject(self, error: Exception) -> None:
        problems = str(error).splitlines()
        self._daemon.rejected = tuple(problems)
        self._daemon.telemetry.settings.reloaded("rejected")
        self._log.error("reload rejected: the settings are invalid; the previous ones stay in force", problems=problems)
