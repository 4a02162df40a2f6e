"""Secrets from files and environment variables."""

import os
from pathlib import Path

import pytest
from support.http_stub import SECRET, SERVER, get

from hpad.adapter import AdapterError
from hpad.adapter_http import Http, HttpOptions, Request, SecretRef, read_secrets


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"word", "word"),
        (b"word\n", "word"),
        (b"word\r\n", "word"),
        (b"word\n\n", "word\n"),
        (b"word\r\n\r\n", "word\r\n"),
        (b"word\r", "word\r"),
        (b"\n word \t\n", "\n word \t"),
    ],
)
async def test_one_trailing_line_end_is_removed(tmp_path: Path, monkeypatch, content, expected) -> None:
    (tmp_path / "secret").write_bytes(content)
    monkeypatch.setenv("SECRET_HERE", content.decode())
    found = await read_secrets(
        {"file": SecretRef(file=str(tmp_path / "secret")), "env": SecretRef(env="SECRET_HERE"), "text": "word\n"}
    )
    assert found == {"file": expected, "env": expected, "text": "word\n"}


async def test_rotated_files_and_variables_are_read_again(stub, context, tmp_path, monkeypatch) -> None:
    stub.answers("{}")
    options = HttpOptions(
        headers={"X-Key": SecretRef(env="KEY_HERE")}, bearer_token=SecretRef(file=str(tmp_path / "t"))
    )
    http = Http(context, options)
    for word in ("one", "two"):
        (tmp_path / "t").write_text(f"{word}\n")
        monkeypatch.setenv("KEY_HERE", f"key {word}")
        await http.send(Request(url=stub.url, name=SERVER))
    sent = [(each.headers["Authorization"], each.headers["X-Key"]) for each in stub.requests]
    assert sent == [("Bearer one", "key one"), ("Bearer two", "key two")]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\n", "is empty"),
        (b"\xff", "cannot be read: it is not UTF-8 text"),
        (b"x" * (1 << 20) + b"\n", "cannot be read: it is larger than 1 MiB"),
    ],
)
async def test_an_unusable_file_is_named(tmp_path: Path, content, error) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(AdapterError) as caught:
        await read_secrets({"password": SecretRef(file=str(file))})
    assert caught.value.message == f"password: {file} {error}"


async def test_a_pipe_without_a_writer_holds_no_thread(tmp_path: Path) -> None:
    """At each read another one would wait, until manifests and histories find none in the pool."""
    os.mkfifo(tmp_path / "secret")
    with pytest.raises(AdapterError, match="cannot be read: not a file"):
        await read_secrets({"password": SecretRef(file=str(tmp_path / "secret"))})


async def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(AdapterError, match="password: the environment variable UNSET_HERE is not set"):
        await read_secrets({"password": SecretRef(env="UNSET_HERE")})


async def test_a_variable_that_is_no_text_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each use of it would fail, without its name."""
    monkeypatch.setenv("HELD_HERE", os.fsdecode(b"\xff"))
    with pytest.raises(AdapterError, match="password: the environment variable HELD_HERE is not UTF-8 text"):
        await read_secrets({"password": SecretRef(env="HELD_HERE")})


@pytest.mark.parametrize("character", ["\r\n", "\x01", "\x7f"])
def test_a_control_character_in_a_configured_header_is_refused(character: str) -> None:
    with pytest.raises(ValueError, match="headers: a line break or control character cannot be part") as caught:
        HttpOptions(headers={"X": f"{SECRET}{character}Y: z"})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("character", ["\r\n", "\x01", "\x7f"])
@pytest.mark.parametrize("option", ["headers", "bearer_token"])
async def test_a_control_character_in_a_secret_file_never_reaches_a_header(
    stub, context, tmp_path, option, character: str
) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}{character}Y: z\n")
    value = SecretRef(file=str(tmp_path / "secret"))
    options = {option: {"X": value} if option == "headers" else value}
    with pytest.raises(AdapterError, match="contains a line break or control character") as caught:
        await get(context, stub.url, **options)
    assert SECRET not in caught.value.message
    assert stub.requests == []
