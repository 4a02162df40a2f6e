"""An exception of an adapter, as the log tells it: never its own text, which may hold a URL with a password in it."""

import traceback

from hpad.adapter import Log


def fields(error: BaseException) -> dict[str, str]:
    """The kind of exception and the line that raised it."""
    return {"exception": type(error).__name__, "at": (_places(error) or [""])[-1]}


def trace(log: Log, source: str, error: BaseException) -> None:
    """Where it came through, for the log at debug."""
    log.debug("how the adapter came to raise it", source=source, through=_places(error))


def _places(error: BaseException) -> list[str]:
    """File and line of each frame, outermost first; the lines themselves would have to be read from disk."""
    return [f"{frame.f_code.co_filename}:{line}" for frame, line in traceback.walk_tb(error.__traceback__)]
