"""gRPC calls by grpclib, in one connection per batch that is closed once it has sent too much."""

import ssl
from types import TracebackType
from typing import Any, Self

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.config import Configuration
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.protocol import H2Protocol

from hpad.adapter import AdapterError, reason
from hpad.adapter_http import failure
from hpad_adapters.keda_external import messages

MAX_BYTES = 4 << 20
"""The limit for everything that a scaler sends in one batch."""
_LONGEST_MESSAGE = 300


class _Bytes(CodecBase):
    """Passes messages on as bytes: `messages` encodes and decodes them."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


class _Bounded(H2Protocol):
    """Closes the connection after MAX_BYTES: the library reads messages of up to 4 GiB."""

    refused = ""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._remaining = MAX_BYTES

    def data_received(self, data: bytes) -> None:
        self._remaining -= len(data)
        if self._remaining < 0:
            self.refused = f"sent more than {MAX_BYTES >> 20} MiB, too much for an answer"
            self.processor.close()
            return
        super().data_received(data)


class _Channel(Channel):
    """A channel whose connection is bounded."""

    made: _Bounded | None = None

    def _protocol_factory(self) -> H2Protocol:
        plain = super()._protocol_factory()
        self.made = _Bounded(plain.handler, self._config, self._h2_config)
        return self.made


class Calls:
    """The calls of one batch to one scaler; `async with` closes their connection."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, server_name: str = "") -> None:
        if tls is not None:
            tls.set_alpn_protocols(["h2"])
        configuration = Configuration(ssl_target_name_override=server_name or None)
        self._channel = _Channel(host, port, codec=_Bytes(), ssl=tls, config=configuration)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    async def call(self, method: str, request: bytes) -> bytes:
        """Returns the response; raises AdapterError whose message is the end of a sentence about the server."""
        path = f"/{messages.SERVICE}/{method}"
        try:
            response: bytes = await UnaryUnaryMethod(self._channel, path, bytes, bytes)(request)
        except GRPCError as error:
            text = f": {error.message[:_LONGEST_MESSAGE]}" if error.message else ""
            raise AdapterError(f"answered to {method} with {error.status.name}{text}") from None
        except (OSError, EOFError, UnicodeError) as error:
            raise AdapterError(self._refused or failure(error)) from None
        except StreamTerminatedError:
            raise AdapterError(self._refused or f"broke off the connection during {method}") from None
        except Exception as error:  # noqa: BLE001  # the library raises any kind for a malformed response
            raise AdapterError(
                self._refused or f"did not answer to {method} as a gRPC server does ({reason(error)})"
            ) from None
        return response

    @property
    def _refused(self) -> str:
        return self._channel.made.refused if self._channel.made is not None else ""
