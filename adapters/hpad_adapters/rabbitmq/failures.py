"""What went wrong on the way to a server, in words; never an exception's own text, which may hold the URL."""

import os

import aiohttp


def reason(error: aiohttp.ClientError) -> str:
    """The end of a sentence that begins with the server's name."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return "has a certificate that is not trusted: configure ca"
        case aiohttp.ClientConnectorSSLError():
            return "does not speak TLS as expected: is the address an http:// one?"
        case aiohttp.ClientConnectorDNSError():
            return "cannot be found: its host name does not resolve"
        case aiohttp.ClientConnectorError() if isinstance(error.os_error, ConnectionRefusedError):
            return "refused the connection"
        case aiohttp.ClientConnectorError():
            return (
                f"cannot be reached: {os.strerror(error.os_error.errno) if error.os_error.errno else 'no connection'}"
            )
        case aiohttp.ClientPayloadError():
            return "broke off in the middle of its answer"
        case aiohttp.ClientResponseError():
            return "did not answer in HTTP: is this the port of the management API (15672), not of AMQP (5672)?"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return "closed the connection without an answer"
    return f"could not be asked ({reason(error)})"
