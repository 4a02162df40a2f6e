"""TLS of the windows: certificates that may change while hpad runs."""

import os
import ssl
from pathlib import Path

from hpad.serve import ServeError
from hpad.settings.shape import Serving

_SETTINGS = ("tls_cert_file", "tls_private_key_file", "client_ca_file")
Stamp = tuple[tuple[int, int, int], ...]


class Certificates:
    """The files of a Serving that has a certificate, as one SSL context that always speaks with their latest version.

    A version is taken as a whole or not at all: certificate, key and authorities are put into a fresh context, to
    which each new handshake is handed over. Sessions are not resumed, since that would outlive an authority.
    """

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._seen: Stamp = ()
        self._latest: ssl.SSLContext
        self.context: ssl.SSLContext

    def open(self) -> None:
        """Read the files for the first time; blocks. Raises ServeError."""
        self._seen = self._stamp()
        self._latest = self.context = self._read()
        self.context.sni_callback = self._hand_over

    def refresh(self) -> bool:
        """Whether the files had changed and are in use now; blocks. Raises ServeError for a version that is no good
        (once, if it can be found at all): then the last good one stays in use."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        self._latest = self._read()
        return True

    def _hand_over(self, tls: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _front: ssl.SSLContext) -> None:
        tls.context = self._latest

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        certificate, key, authorities = self._files()
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:
            files = f"tls_cert_file {certificate}, tls_private_key_file {key}"
            raise ServeError(f"{files}: cannot be used for TLS: {_why(error)}") from None
        if authorities is not None:
            try:
                context.load_verify_locations(authorities)
            except OSError as error:
                raise ServeError(
                    f"client_ca_file: {authorities} holds no certificate authorities: {_why(error)}"
                ) from None
            context.verify_mode = ssl.CERT_OPTIONAL  # probes have none to show
        return context

    def _stamp(self) -> Stamp:
        """What differs whenever a file was replaced, also by way of a link."""
        stamps = []
        for setting, file in zip(_SETTINGS, self._files(), strict=True):
            if file is None:
                continue
            try:
                found = os.stat(file)
            except OSError as error:
                raise ServeError(f"{setting}: {file}: {error.strerror}") from None
            stamps.append((found.st_ino, found.st_size, found.st_mtime_ns))
        return tuple(stamps)

    def _files(self) -> tuple[Path, Path, Path | None]:
        certificate, key = self._serving.certificate, self._serving.private_key
        if certificate is None or key is None:
            raise ServeError("TLS needs both a certificate and a private key")
        return certificate, key, self._serving.client_ca


def _no_password() -> str:
    """A service has nobody to ask; without this OpenSSL would wait at the terminal."""
    raise ValueError("the private key is encrypted, and there is no password")


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
