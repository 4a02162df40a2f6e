"""gRPC calls by grpclib, in one connection per batch that is closed once it has sent too much."""

import ssl
from typing import Any

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
MESSAGE_BYTES = 16 << 10
"""The limit for one answer, which holds a few names and numbers: each field of two bytes takes a microsecond."""
FRAMES, FRAMES_PER_CALL = 64, 32
"""The limit for frames that hold no part of a message to speak of: a call needs some five."""
HEADER_BYTES = 16 << 10
"""The limit for the headers of one answer when they are unpacked: a byte of a frame stands for a whole header."""
_LONGEST_MESSAGE = 300
_FRAME_HEADER = 9
_DATA = 0
_SMALL = 1 << 10


class _Bytes(CodecBase):
    """Passes messages on as bytes: `messages` encodes and decodes them."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


class Budget:
    """What a scaler may still send in one batch, over all its connections; `refused` is why one was given up."""

    def __init__(self) -> None:
        self.refused = ""
        self.bytes = MAX_BYTES
        self.frames = FRAMES

    def take(self, count: int, frames: int) -> bool:
        """Returns whether so many bytes and frames were left."""
        self.bytes -= count
        self.frames -= frames
        if self.bytes < 0:
            self.refused = f"sent more than {MAX_BYTES >> 20} MiB, too much for an answer"
        elif self.frames < 0:
            self.refused = "sent more frames than an answer needs"
        return not self.refused


class _Bounded(H2Protocol):
    """Closes the connection once the budget is spent: the library reads messages of up to 4 GiB and all frames."""

    def __init__(self, budget: Budget, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._budget = budget
        self._header = b""
        self._rest = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # The library has no option for it.
        self.connection._connection.decoder.max_header_list_size = HEADER_BYTES

    def data_received(self, data: bytes) -> None:
        if self._budget.take(len(data), self._counted(data)):
            super().data_received(data)
        else:
            self.processor.close()

    def _counted(self, data: bytes) -> int:
        """Follows the frames, and returns how many began that are no large part of a message (RFC 9113, 4.1)."""
        at = found = 0
        while at < len(data):
            if self._rest:
                step = min(self._rest, len(data) - at)
                self._rest -= step
            else:
                step = min(_FRAME_HEADER - len(self._header), len(data) - at)
                self._header += data[at : at + step]
            at += step
            if len(self._header) == _FRAME_HEADER:
                self._rest = int.from_bytes(self._header[:3], "big")
                found += self._header[3] != _DATA or self._rest < _SMALL
                self._header = b""
        return found


class _Channel(Channel):
    """A channel whose connection is bounded."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.budget = Budget()

    def _protocol_factory(self) -> H2Protocol:
        plain = super()._protocol_factory()
        return _Bounded(self.budget, plain.handler, self._config, self._h2_config)


class Calls:
    """The calls of one batch to one scaler."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, server_name: str = "") -> None:
        if tls is not None:
            tls.set_alpn_protocols(["h2"])
        configuration = Configuration(ssl_target_name_override=server_name or None)
        self._channel = _Channel(host, port, codec=_Bytes(), ssl=tls, config=configuration)

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    async def call(self, method: str, request: bytes) -> bytes:
        """Returns the response; raises AdapterError whose message is the end of a sentence about the server."""
        path = f"/{messages.SERVICE}/{method}"
        if self._refused:
            raise AdapterError(self._refused)
        self._channel.budget.frames += FRAMES_PER_CALL
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
        if len(response) > MESSAGE_BYTES:
            raise AdapterError(f"answered to {method} with more than {MESSAGE_BYTES >> 10} KiB")
        return response

    @property
    def _refused(self) -> str:
        return self._channel.budget.refused
