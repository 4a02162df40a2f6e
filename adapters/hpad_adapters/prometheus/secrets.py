"""Credentials and certificates: from the configuration, the environment, or files read again when they change."""

import asyncio
import os
import ssl
from pathlib import Path

import aiohttp

from hpad.adapter import AdapterError, reason
from hpad_adapters.prometheus.settings import Elsewhere, Settings

_UNFIT = "\r\n\0"


class Secrets:
    """The headers and the TLS context of one source."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._files: dict[str, tuple[tuple[int, int], str]] = {}
        self._tls: tuple[tuple[tuple[int, int], ...], ssl.SSLContext] | None = None
        values = (settings.secret, *settings.headers.values())
        self._static = not any(isinstance(value, Elsewhere) for value in values)
        self._headers = self._made() if self._static else None

    async def headers(self) -> dict[str, str]:
        """What to send with a request; raises AdapterError naming the file or variable that is missing."""
        return self._headers if self._headers is not None else await asyncio.to_thread(self._made)

    async def tls(self) -> ssl.SSLContext | bool:
        """What aiohttp takes as `ssl`; raises AdapterError naming the file that cannot be used."""
        options = self._settings
        if options.insecure and not options.cert:
            return False
        if not options.ca and not options.cert:
            return True
        return await asyncio.to_thread(self._context)

    def _made(self) -> dict[str, str]:
        settings = self._settings
        made = {name: self._text(value, f"headers: {name}") for name, value in settings.headers.items()}
        if settings.secret:
            secret = self._text(settings.secret, "password" if settings.username else "bearer_token")
            basic = settings.username and aiohttp.encode_basic_auth(settings.username, secret)
            made["Authorization"] = basic or f"Bearer {secret}"
        return made

    def _text(self, value: str | Elsewhere, field: str) -> str:
        if isinstance(value, str):
            text = value
        elif value.env:
            if value.env not in os.environ:
                raise AdapterError(f"{field}: the environment variable {value.env} is not set")
            text = os.environ[value.env]
        else:
            text = self._content(value.file, field)
        if any(character in text for character in _UNFIT):
            raise AdapterError(f"{field}: what is there holds a line break, so that no header can carry it")
        return text

    def _content(self, file: str, field: str) -> str:
        try:
            stamp = _stamp(file)
            known = self._files.get(file)
            if known is None or known[0] != stamp:
                known = self._files[file] = stamp, Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AdapterError(f"{field}: {file} cannot be read: {_reason(error)}") from None
        if not known[1]:
            raise AdapterError(f"{field}: {file} is empty")
        return known[1]

    def _context(self) -> ssl.SSLContext:
        options = self._settings
        files = [file for file in (options.ca, options.cert, options.key) if file]
        try:
            stamps = tuple(map(_stamp, files))
            if self._tls is None or self._tls[0] != stamps:
                self._tls = stamps, self._loaded()
        except (OSError, ssl.SSLError) as error:
            named = getattr(error, "filename", None) or ", ".join(files)
            raise AdapterError(f"TLS: {named} cannot be used: {_reason(error)}") from None
        return self._tls[1]

    def _loaded(self) -> ssl.SSLContext:
        options = self._settings
        context = ssl.create_default_context(cafile=options.ca or None)
        if options.cert:
            context.load_cert_chain(options.cert, options.key or None)
        if options.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _stamp(file: str) -> tuple[int, int]:
    status = os.stat(file)
    return status.st_mtime_ns, status.st_size


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or reason(error)
