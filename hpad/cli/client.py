"""Reads JSON from a running hpad by HTTP or HTTPS, at the address that the command line names."""

import argparse
import http.client
import os
import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from hpad.api.loopback import names_loopback
from hpad.api.text import shown
from hpad.cli import answers, output
from hpad.cli.fetch import ANOTHER, Answer, Refusal, fetch
from hpad.cli.output import Failure, WrongUse
from hpad.clock import SystemClock
from hpad.files import content

LISTEN = "HPAD_LISTEN"
_SECONDS = 5.0
_LARGEST_TOKENS: Final = 1 << 20
"""Bytes of a file of tokens."""
_ADVICE = {
    401: "authenticate with --token-file",
    403: "the cluster must allow you to `get` that path (a non-resource URL)",
}
_OTHER = "does hpad listen there?"
_ALTERNATIVE = "name another --address"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for the address and for authentication."""
    text = "where hpad listens (default: HPAD_LISTEN, else 127.0.0.1:8473); start with https:// if it serves TLS"
    parser.add_argument("--address", metavar="HOST:PORT", help=text)
    parser.add_argument(
        "--cacert", type=Path, metavar="FILE", help="trust servers certified by these authorities (PEM)"
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="authenticate with the first bearer token of this file"
    )


@dataclass(frozen=True)
class Direct:
    """A Reader of the hpad at one address.

    `context` is None for plain HTTP, and where TLS trusts the authorities of this machine; `token` is None without
    authentication. `host` is the name that the certificate must have, by default that of the URL. `name` stands for the
    URL in messages, and `advice` ends them where no hpad answers.
    """

    url: str
    context: ssl.SSLContext | None = None
    token: str | None = None
    host: str = ""
    name: str = ""
    advice: str = _ALTERNATIVE

    def __str__(self) -> str:
        return self.name or self.url

    def get(self, path: str) -> Any:
        """See Reader.get. Raises Refusal if hpad answers with another status than 200, else Failure."""
        what = self.name or f"{self.url}{path}"
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        try:
            answer = fetch(self._connection(), path, headers, _SECONDS)
            if answer.status != 200:
                raise _refusal(what, answer)
            found = answer.json()
            answers.check(path, found)
        except OSError as error:
            raise Failure(f"no hpad answers on {what}: {reason(error)}{self.advice and '; '}{self.advice}") from None
        except msgspec.ValidationError as error:
            raise Failure(f"{what} did not answer as hpad does ({error}): {ANOTHER}") from None
        except (ValueError, RecursionError, http.client.HTTPException):
            raise Failure(f"{what} did not answer with JSON: {_OTHER}") from None
        return found

    def _connection(self) -> http.client.HTTPConnection:
        # http.client uses no proxy of the environment and follows no redirect, either of which would see the token.
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.netloc)
        context = self.context or ssl.create_default_context()
        return _Secure(parts.netloc, context, self.host or parts.hostname or "")


class _Secure(http.client.HTTPConnection):
    """A connection with TLS to a server whose certificate has the name `host`."""

    default_port = http.client.HTTPS_PORT

    def __init__(self, address: str, context: ssl.SSLContext, host: str) -> None:
        super().__init__(address)
        self._context = context
        self._host = host

    def connect(self) -> None:
        super().connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self._host)


def _refusal(what: str, answer: Answer) -> Refusal:
    error = "" if answer.status in _ADVICE else answer.error
    text = error or f"{what} answered {answer.status} {answer.reason}: {_ADVICE.get(answer.status, _OTHER)}"
    return Refusal(text, answer.status, error)


def reader(args: argparse.Namespace) -> Direct:
    """Returns the Reader that the flags of `add_arguments` name; raises Failure if one is invalid."""
    url = _url(args)
    context = tls_context(args)
    token = None if args.token_file is None else read_token(args.token_file)
    advice = _ALTERNATIVE
    if not args.address and listens():
        advice = f"{LISTEN} names this address; {advice}"
    return Direct(url, context, token, advice=advice)


def listens() -> str:
    """Returns the address in HPAD_LISTEN; "" for none."""
    text = os.environ.get(LISTEN, "")
    return "" if text == "none" else text


def _url(args: argparse.Namespace) -> str:
    text = args.address or listens() or "127.0.0.1:8473"
    scheme, separator, address = text.rpartition("://")
    if address.startswith(":"):  # hpad listens on all addresses
        address = f"127.0.0.1{address}"
    if (separator and scheme not in ("http", "https")) or not _is_address(address):
        raise WrongUse(
            f"{'--address' if args.address else LISTEN}: {shown(text)} is not of the form HOST:PORT or https://HOST:PORT"
        )
    # Without a scheme, TLS follows from the settings of hpad on this machine, or from --cacert, which only TLS uses.
    by_environment = not args.address and bool(os.environ.get("HPAD_TLS_CERT_FILE"))
    tls = scheme == "https" if separator else by_environment or args.cacert is not None
    if args.token_file is not None and not tls and not names_loopback(f"//{address}"):
        raise WrongUse(f"--token-file: the token would cross the network unencrypted: write https://{address}")
    return f"{'https' if tls else 'http'}://{address.rstrip('/')}"


def _is_address(address: str) -> bool:
    """Returns whether the text has a host and, if it has a port, a valid one."""
    try:
        parts = urllib.parse.urlsplit(f"//{address}")
        return bool(parts.hostname) and parts.port != 0 and address.isascii() and " " not in address
    except ValueError:
        return False


def tls_context(args: argparse.Namespace) -> ssl.SSLContext | None:
    """Returns the TLS context of --cacert, None without it; raises Failure if the file cannot be used."""
    if args.cacert is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(args.cacert))
    except OSError as error:
        raise Failure(f"--cacert: {args.cacert} has no certificate authorities: {reason(error)}") from None


def read_token(file: Path) -> str:
    """Returns the first line of a file of tokens that is not empty; raises Failure."""
    try:
        lines = [line.strip() for line in content(file, _LARGEST_TOKENS).decode("ascii").splitlines() if line.strip()]
    except OSError as error:
        raise Failure(f"--token-file: {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"--token-file: {file} has no token: it is not plain text") from None
    if not lines:
        raise Failure(f"--token-file: {file} is empty")
    return lines[0]


def reason(error: object) -> object:
    """Returns why a connection failed, without the number of the error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{error.verify_message}: name its authorities with --cacert"
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or error


# The metric sources, which `hpad sources` and `kubectl hpad sources` print.

_COLUMNS: Final = ("NAME", "ADAPTER", "STATE", "LATENCY", "HIT-RATE", "ERROR-AGE", "LAST-ERROR")
_UNHEALTHY: Final = ("broken", "failing", "open")


def show_sources(rows: Sequence[Mapping[str, Any]], value: Any, form: str) -> int:
    """Prints the sources as a table, or `value` as json or yaml. Returns 0 if all work, else 1."""
    if form in ("json", "yaml"):
        output.print_value(value, form)
    else:
        now = SystemClock().now()
        output.show_table([_COLUMNS, *(_cells(row, now) for row in rows)])
    return 1 if any(row["state"] in _UNHEALTHY for row in rows) else 0


def _cells(row: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    """Returns the cells of one source, as the API reports it."""
    latency, asked, erred = row.get("latency"), row.get("asked"), row.get("lastErrorAt")
    return (
        row["name"],
        row["adapter"],
        row["state"],
        "-" if latency is None else f"{latency * 1000:.0f}ms",
        "-" if not asked else f"{100 * row['hits'] / asked:.0f}%",
        "-" if erred is None else output.age((now - datetime.fromisoformat(erred)).total_seconds()),
        " ".join((row.get("lastError") or "-").split()),
    )
