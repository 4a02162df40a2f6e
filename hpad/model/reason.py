"""The failure of a connection or a file in words, instead of the name of its class."""

import re
from typing import Final

_WORDS: Final = {
    "ConnectionRefusedError": "connection refused",
    "ConnectionResetError": "connection reset",
    "ConnectionError": "connection broken",
    "gaierror": "host name not known",
    "ClientConnectorDNSError": "host name not known",
    "SSLCertVerificationError": "certificate not trusted",
    "SSLError": "TLS connection failed",
    "ClientSSLError": "TLS connection failed",
    "ServerDisconnectedError": "connection closed without an answer",
    "ClientPayloadError": "answer broken off",
    "EOFError": "connection closed",
    "TimeoutError": "no answer in time",
    "FileNotFoundError": "no such file",
    "PermissionError": "permission denied",
    "IsADirectoryError": "it is a directory",
    "YAMLError": "not valid YAML",
    "UnicodeError": "not UTF-8",
}


def reason(error: BaseException) -> str:
    """What went wrong, in a few words: "connection refused".

    An error that carries another (aiohttp's `os_error`, or a cause) is told by that one. For classes that are not known
    here the words of their names are used.
    """
    for each in (getattr(error, "os_error", None), error.__cause__, error):
        for kind in type(each).__mro__:
            if kind.__name__ in _WORDS:
                return _WORDS[kind.__name__]
    name = re.sub(r"(Error|Exception)$", "", type(error).__name__)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower() or "failed"
