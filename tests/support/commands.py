"""Calls a command of hpad in this process, which is faster than starting one."""

import asyncio
import contextlib
import io
from collections.abc import Callable, Sequence

from hpad import cli


def called(*arguments: str, main: Callable[[Sequence[str]], int] = cli.main) -> tuple[int, str, str]:
    """Returns exit status, standard output and standard error."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            status = main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
    return status, out.getvalue(), err.getvalue()


async def called_beside(*arguments: str, main: Callable[[Sequence[str]], int] = cli.main) -> tuple[int, str, str]:
    """As `called`, in a thread, beside a daemon or a cluster on the event loop."""
    return await asyncio.to_thread(called, *arguments, main=main)
