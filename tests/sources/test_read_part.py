"""Bodies of answers, read part by part."""

import asyncio
import types
from typing import Any, cast

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import StreamReader

from hpad.adapter import read_part


async def test_a_connection_that_is_lost_between_two_parts_is_an_error_of_the_connection() -> None:
    """aiohttp's reader with a connection that was lost in the middle of the body: aiohttp raises RuntimeError."""
    loop = asyncio.get_running_loop()
    reader = StreamReader(BaseProtocol(loop), 2**16, loop=loop)
    reader.feed_data(b"the first part")
    answer = cast(Any, types.SimpleNamespace(content=reader))
    assert await read_part(answer) == b"the first part"
    with pytest.raises(aiohttp.ClientPayloadError, match="the connection was lost"):
        await read_part(answer)


async def test_a_body_that_has_ended_is_empty_from_then_on() -> None:
    loop = asyncio.get_running_loop()
    reader = StreamReader(BaseProtocol(loop), 2**16, loop=loop)
    reader.feed_eof()
    answer = cast(Any, types.SimpleNamespace(content=reader))
    assert [await read_part(answer), await read_part(answer)] == [b"", b""]
