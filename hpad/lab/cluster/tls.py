"""HTTPS for the embedded API server, with optional client certificates."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Files:
    """PEM files: the server's certificate and key, and the CA of server and clients."""

    certificate: Path
    key: Path
    authority: Path

    def context(self) -> ssl.SSLContext:
        """Loads the files; blocks. Raises OSError for an unreadable file, ssl.SSLError for an invalid one."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority))
        context.load_cert_chain(self.certificate, self.key)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the default since Python 3.13; Go does not verify strictly
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


async def made(folder: Path) -> Files:
    """Creates a self-signed certificate for a server on loopback with openssl; raises OSError if that fails."""
    files = Files(folder / "server.crt", folder / "server.key", folder / "server.crt")
    command = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    named = ("-days", "3650", "-subj", "/CN=hpad-lab", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    usage = ("-addext", "keyUsage=critical,digitalSignature,keyCertSign")
    process = await asyncio.create_subprocess_exec(
        *(*command, *named, *usage, "-keyout", str(files.key), "-out", str(files.certificate)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, output = await process.communicate()
    if process.returncode:
        raise OSError(f"openssl made no certificate: {output.decode(errors='replace').strip()[-200:]}")
    return files
