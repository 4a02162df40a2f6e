"""TLS of the HTTP server, with certificates that may be replaced while hpad runs."""

import os
import ssl

from hpad.serve import ServeError
from hpad.settings.model import Serving

Stamp = tuple[tuple[int, int, int], ...]


class Certificates:
    """An SSL context that always uses the latest valid version of the certificate files.

    `context` is None before the first `refresh`, and the same object ever after. Each version of certificate and key
    becomes a context of its own, to which new handshakes switch.
    """

    def __init__(self, serving: Serving) -> None:
        self._files = {
            "tls_cert_file": serving.certificate,
            "tls_private_key_file": serving.private_key,
        }
        self._stamp: Stamp = ()
        self._latest: ssl.SSLContext
        self.context: ssl.SSLContext | None = None

    def refresh(self) -> bool:
        """Loads the files if they changed, and returns whether they did. Blocks.

        Raises ServeError for an unusable version; the previous version stays in use.
        """
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return False
        self._latest = self._load()
        self._stamp = stamp
        if self.context is None:
            self.context = self._latest
            # Called in each handshake, also without a server name in it: the listener keeps its first context for good.
            self.context.sni_callback = self._switch_context
        return True

    def _switch_context(self, tls: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _front: ssl.SSLContext) -> None:
        tls.context = self._latest

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Without resumption: a resumed session would outlive a certificate that was replaced.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        certificate, key = self._files.values()
        assert certificate is not None
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:
            files = f"tls_cert_file {certificate}, tls_private_key_file {key}"
            raise ServeError(f"{files}: cannot be used for TLS: {_reason(error)}") from None
        return context

    def _read_stamp(self) -> Stamp:
        """Returns inode, size and time of each file: they change when it is replaced, also through a symbolic link."""
        stamps = []
        for setting, file in self._files.items():
            if file is None:
                continue
            try:
                found = os.stat(file)
            except OSError as error:
                raise ServeError(f"{setting}: {file}: {error.strerror}") from None
            stamps.append((found.st_ino, found.st_size, found.st_mtime_ns))
        return tuple(stamps)


def _no_password() -> str:
    """Refuses encrypted keys. Without a callback OpenSSL would prompt on the terminal."""
    raise ValueError("the private key is encrypted; hpad needs an unencrypted key")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
