"""Control characters from a metric source are escaped on a terminal, on the page and in conditions."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support import http_server
from support.redis_lab import commands

from hpad import cli, testing
from hpad.adapter import AdapterError, Query
from hpad.api.hpa import from_builtins
from hpad.api.text import harmless, harmless_json, harmless_lines
from hpad.cli import output
from hpad.clock import SystemClock
from hpad.settings.model import Serving
from hpad.sources import call, limits
from hpad.sources.redact import Redactor
from hpad_adapters.redis import Redis

ODD = "\x1b[2J\x1b]0;owned\x07 line\r2 \x9b31m\x7f \u202egnp.exe\u2066\u200f\u2028\u2029\x00"
BAD = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))}
BAD |= set("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def test_control_characters_are_escaped_and_other_text_is_not() -> None:
    assert harmless("größer → 3, 東京, 👩‍💻, \\x1b") == "größer → 3, 東京, 👩‍💻, \\x1b"
    assert harmless("a\tb\nc\rd\x1b\x9b\u202e\udc80") == "a\\tb\\nc\\rd\\u001b\\u009b\\u202e\\udc80"
    assert harmless_lines("a\tb\nc\rd\x1b") == "a\tb\nc\\rd\\u001b"
    for character in BAD:
        assert harmless(character).isascii()
        assert harmless(character).isprintable()


def test_escaped_json_keeps_its_value() -> None:
    value = {ODD: [ODD, 1.5, None, "東京\n"]}
    body = harmless_json(json.dumps(value, ensure_ascii=False).encode())
    assert json.loads(body) == value
    assert not set(body.decode()) & BAD
    assert harmless_json(b'{"a":1}\n') == b'{"a":1}\n'


class Hostile:
    """An adapter that passes on the text of its server."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def answer(self, queries: list[Query]) -> list[Any]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return [self._answer] * len(queries)


@pytest.mark.parametrize("error", [AdapterError(ODD), AdapterError(ODD, "spec"), AdapterError(ODD * 1000, ODD)])
async def test_errors_of_sources_have_no_control_characters(error: AdapterError) -> None:
    """Conditions, events, logs, the page and `hpad sources` all show this text."""
    made = call.Caller(
        "odd",
        Hostile(error),
        clock=SystemClock(),
        log=None,
        limits=limits.CallLimits(),
        redact=Redactor({}),  # type: ignore[arg-type]
    )
    (answer,) = await made.call([testing.external("depth")], retries=0)
    assert isinstance(answer, AdapterError)
    assert "owned" in answer.message
    assert not set(answer.message) & BAD


async def test_an_error_of_redis_is_one_line() -> None:
    """Redis puts no line break into an error: redis-py takes one for the end of the connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        failure = b"-ERR \x1b[2J\x1b]0;owned\x07 line \xc2\x9b31m\r\n"
        with contextlib.suppress(ConnectionError, EOFError), contextlib.closing(writer):
            async for command in commands(reader):
                writer.write(b"+list\r\n" if command.startswith(b"TYPE ") else failure)

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server, testing.context("redis") as context:
        url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        adapter = Redis(Redis.Settings(url=url), context)
        made = call.Caller(
            "odd", adapter, clock=SystemClock(), log=context.log, limits=limits.CallLimits(), redact=Redactor({})
        )
        (answer,) = await made.call([testing.external("redis_list_length", "key=a")], retries=0)
    assert isinstance(answer, AdapterError)
    assert "ERR \\u001b[2J\\u001b]0;owned\\u0007 line \\u009b31m" in answer.message


class One(http_server.NoHpas):
    def values(self) -> tuple[Any, ...]:
        spec = {"scaleTargetRef": {"kind": ODD, "name": ODD}, "maxReplicas": 9}
        condition = {"type": "ScalingActive", "status": "False", "reason": ODD, "message": ODD}
        built = {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec, "status": {"conditions": [condition]}}
        return (from_builtins(built),)


async def test_responses_of_the_port_have_no_control_characters() -> None:
    async with http_server.opened(Serving(), source=One(), unready=lambda: [ODD]) as server:
        for path in (
            "/api/v1/hpas",
            "/api/v1/hpas/shop/web",
            "/api/v1/status",
            "/readyz",
        ):
            _, text = await http_server.get(server.url + path)
            assert "owned" in text
            assert not set(text) & (BAD - {"\n"}), path


def test_commands_print_no_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    escaped = json.dumps(ODD)
    (tmp_path / "hpa.yaml").write_text(
        f"apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {{name: {escaped}}}\n"
        f"spec: {{maxReplicas: 3, scaleTargetRef: {{kind: Deployment, name: {escaped}}}, {escaped}: 1}}\n"
    )
    streams = sys.stdout, sys.stderr
    assert cli.main(["check", str(tmp_path / "hpa.yaml")]) == 1
    with pytest.raises(SystemExit):
        cli.main(["check", str(tmp_path / "hpa.yaml"), "--" + ODD.replace("\0", "").replace(" ", "")])
    assert (sys.stdout, sys.stderr) == streams
    printed = capsys.readouterr()
    assert "owned" in printed.out
    assert "owned" in printed.err
    assert not set((printed.out + printed.err).replace("\n", "").replace("\t", "")) & BAD


def test_a_document_for_a_file_is_printed_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    with output.printing():
        output.print_document("# \u200fשלום\n")
        print("\u200f!")
    assert capsys.readouterr().out == "# \u200fשלום\n\\u200f!\n"
