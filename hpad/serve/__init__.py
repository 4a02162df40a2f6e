"""Read-only windows over HTTP.

What keeps a window from opening.
"""


class ServeError(Exception):
    """The window cannot be opened as told; the message names the address or the file and says why."""
