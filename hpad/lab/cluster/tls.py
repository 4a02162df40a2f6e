"""HTTPS for the embedded API server, with client certificates where clients have them."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Files:
    """PEM files: the server's certificate and key, and the authority that signed it and the clients'."""

    certificate: Path
    key: Path
    authority: Path

    def context(self) -> ssl.SSLContext:
        """Blocks. Raises OSError for what cannot be read, ssl.SSLError for what is no certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority))
        context.load_cert_chain(self.certificate, self.key)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as newer Pythons have it, and Kubernetes has not
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


async def made(folder: Path) -> Files:
    """Files of its own for a server on loopback, made by openssl, which signs what it made itself.

    Raises OSError where there is no openssl, or where it fails.
    """
    files = Files(folder / "server.crt", folder / "server.key", folder / "server.crt")
    command = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    named = ("-days", "365", "-subj", "/CN=hpad-lab", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    usage = ("-addext", "keyUsage=critical,digitalSignature,keyCertSign")
    process = await asyncio.create_subprocess_exec(
        *(*command, *named, *usage, "-keyout", str(files.key), "-out", str(files.certificate)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    if process.returncode:
        raise OSError(f"openssl made no certificate: {said.decode(errors='replace').strip()[-200:]}")
    return files
