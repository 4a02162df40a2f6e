"""The read-only HTTP server: /metrics, health, JSON API, status page; TLS and authentication."""


class ServeError(Exception):
    """The server cannot start as configured; the message names the setting or address, the file and the reason."""
