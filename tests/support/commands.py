"""Calls a command of hpad in this process, which is faster than starting one."""

import contextlib
import io

from hpad import cli


def called(*arguments: str) -> tuple[int, str, str]:
    """Returns exit status, standard output and standard error."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            status = cli.main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
    return status, out.getvalue(), err.getvalue()
