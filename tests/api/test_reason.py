"""Failures in words."""

import socket
import ssl

import pytest

from hpad.api.text import reason


class OddThingError(Exception):
    pass


class Carrier(Exception):
    os_error = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)")


def caused() -> Exception:
    error = OddThingError()
    error.__cause__ = ssl.SSLCertVerificationError()
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (Carrier(), "connection refused"),
        (caused(), "certificate not trusted"),
        (BrokenPipeError(), "connection broken"),
        (socket.gaierror(-2, "Name or service not known"), "host name not known"),
        (TimeoutError(), "no answer in time"),
        (FileNotFoundError(2, "No such file"), "no such file"),
        (OddThingError("a secret"), "odd thing"),
    ],
)
def test_a_failure_is_told_in_words(error: Exception, text: str) -> None:
    assert reason(error) == text
