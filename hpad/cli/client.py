"""Reads JSON from a running hpad over HTTP or HTTPS, for `hpad sources`."""

import argparse
import http.client
import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from hpad.api.text import shown
from hpad.cli.output import Failure

_SECONDS = 5.0
_LOOPBACK = ("127.0.0.1", "[::1]", "localhost")
_ALTERNATIVE = "name another --address, or a --config to check it offline"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for the address and for authentication."""
    text = "where hpad listens (default: HPAD_LISTEN, else 127.0.0.1:8473); start with https:// if it serves TLS"
    parser.add_argument("--address", metavar="HOST:PORT", help=text)
    parser.add_argument(
        "--cacert", type=Path, metavar="FILE", help="trust servers certified by these authorities (PEM)"
    )
    parser.add_argument("--cert", type=Path, metavar="FILE", help="authenticate with this client certificate (PEM)")
    parser.add_argument("--key", type=Path, metavar="FILE", help="its private key, unless it is in the same file (PEM)")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="authenticate with the first bearer token of this file"
    )


def ask(args: argparse.Namespace, path: str) -> Any:
    """GETs a path and returns the decoded JSON; raises Failure."""
    url = _url(args) + path
    request = urllib.request.Request(url)
    if args.token_file is not None:
        request.add_unredirected_header("Authorization", f"Bearer {_token(args.token_file)}")
    try:
        with _opener(args).open(request, timeout=_SECONDS) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise Failure(f"{url} answered {error.code} {error.reason}: {_advice(error.code)}") from None
    except OSError as error:
        cause = getattr(error, "reason", error)
        raise Failure(f"no hpad answers on {url}: {_reason(cause)}; {_ALTERNATIVE}") from None
    except (ValueError, http.client.HTTPException):
        raise Failure(f"{url} did not answer with JSON: is it hpad that listens there?") from None


def _url(args: argparse.Namespace) -> str:
    text = args.address or os.environ.get("HPAD_LISTEN") or "127.0.0.1:8473"
    scheme, separator, address = text.rpartition("://")
    if address.startswith(":"):  # hpad listens on all addresses
        address = f"127.0.0.1{address}"
    if (separator and scheme not in ("http", "https")) or not _is_address(address):
        raise Failure(f"--address: {shown(text)} is not of the form HOST:PORT or https://HOST:PORT")
    by_environment = not args.address and bool(os.environ.get("HPAD_TLS_CERT_FILE"))
    by_flags = args.cacert is not None or args.cert is not None
    tls = scheme == "https" if separator else by_environment or by_flags
    host = address.rstrip("/").rpartition(":")[0] or address
    if args.token_file is not None and not tls and host not in _LOOPBACK:
        raise Failure(f"--token-file: the token would cross the network unencrypted: write https://{address}")
    return f"{'https' if tls else 'http'}://{address.rstrip('/')}"


def _is_address(address: str) -> bool:
    """Whether the text has a host and, if it has a port, a valid one."""
    try:
        parts = urllib.parse.urlsplit(f"//{address}")
        return bool(parts.hostname) and parts.port != 0 and address.isascii() and " " not in address
    except ValueError:
        return False


def _opener(args: argparse.Namespace) -> urllib.request.OpenerDirector:
    """Connects directly, without a proxy of the environment, and follows no redirect."""
    context = ssl.create_default_context()
    try:
        if args.cacert is not None:
            context = ssl.create_default_context(cafile=str(args.cacert))
    except OSError as error:
        raise Failure(f"--cacert: {args.cacert} holds no certificate authorities: {_reason(error)}") from None
    try:
        if args.cert is not None:
            context.load_cert_chain(args.cert, args.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise Failure(f"--cert: {args.cert} cannot be used: {_reason(error)}") from None
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirects()
    )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which hpad never sends."""

    def redirect_request(self, *_: object) -> None:
        return None


def _token(file: Path) -> str:
    try:
        lines = [line.strip() for line in file.read_text(encoding="ascii").splitlines() if line.strip()]
    except OSError as error:
        raise Failure(f"--token-file: {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"--token-file: {file} holds no token: it is not plain text") from None
    if not lines:
        raise Failure(f"--token-file: {file} is empty")
    return lines[0]


def _no_password() -> str:
    raise ValueError("its key is encrypted; name one that is not")


def _advice(status: int) -> str:
    if status == 401:
        return "authenticate with --token-file or --cert"
    if status == 403:
        return "the cluster must allow you to `get` that path (a non-resource URL)"
    return "is it hpad that listens there?"


def _reason(error: object) -> object:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{error.verify_message}: name its authorities with --cacert"
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or error
