"""`hpad explain --save`: the last decisions of one HPA of a running hpad, as a recording."""

import asyncio
import gzip
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hpad.cli import main

LISTEN = ("127.0.0.1", 0)


async def explain(world: Any, *args: str) -> int:
    address = world.daemon.server.url.removeprefix("http://")
    return await asyncio.to_thread(main, ["explain", *args, "--address", address])


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Returns the lines of a command."""
    return capsys.readouterr().out.splitlines()


async def names(folder: Path) -> list[str]:
    return await asyncio.to_thread(lambda: [each.name for each in folder.iterdir()])


async def two_hpas(world: Any, **settings: Any) -> None:
    """Starts hpad, and waits until each HPA has been scaled: `web` to 3, and `confidential` to 4."""
    for name, millis in (("web", 150), ("confidential", 200)):
        world.workload("Deployment", name, 1)
        world.load(name, lambda pods, millis=millis: millis // max(pods, 1))
        world.hpa(name)
    await world.hpad(listen=LISTEN, **settings)
    wanted = {"web": 3, "confidential": 4}
    await world.until(lambda: all(world.replicas("deployments", name) == count for name, count in wanted.items()))
    await world.until(lambda: world.status("web").get("currentReplicas") == 3)


async def test_the_saved_decisions_of_one_hpa_replay_alike(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await two_hpas(world)
    file = tmp_path / "web.jsonl"
    capsys.readouterr()
    assert await explain(world, "web", "--save", str(file)) == 0
    [line] = printed(capsys)
    assert line.startswith(f"{file}: ")
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    assert "confidential" not in text
    scenarios = list(map(json.loads, text.splitlines()))
    assert {each["hpa"]["metadata"]["name"] for each in scenarios} == {"web"}
    assert 3 in [step["expect"]["scaleTo"] for each in scenarios for step in each["steps"]]
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["replay", str(file)]) == 0
    replayed = list(map(json.loads, printed(capsys)))
    assert [[step["expect"] for step in each["steps"]] for each in scenarios] == [each["steps"] for each in replayed]


async def test_a_name_that_ends_in_gz_is_compressed_and_an_existing_file_is_kept(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await two_hpas(world)
    file = tmp_path / "web.jsonl.gz"
    assert await explain(world, "default/web", "--save", str(file)) == 0
    before = file.read_bytes()
    assert json.loads(gzip.decompress(before).splitlines()[0])["hpa"]["metadata"]["name"] == "web"
    capsys.readouterr()
    assert await explain(world, "web", "--save", str(file)) == 1
    assert capsys.readouterr().err == f"hpad: --save: {file}: cannot be written: it exists; name a new file\n"
    assert file.read_bytes() == before
    assert await names(tmp_path) == [file.name]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (
            {"record_recent": timedelta(0)},
            "the last decisions are not kept: record_recent is off",
        ),
        ({"record_recent": timedelta(microseconds=1)}, "no decision for the HPA default/web is in memory"),
    ],
)
async def test_what_is_not_in_memory_is_an_error(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, Any], error: str
) -> None:
    await two_hpas(world, **settings)
    capsys.readouterr()
    assert await explain(world, "web", "--save", str(tmp_path / "web.jsonl")) == 1
    assert error in capsys.readouterr().err
    assert await names(tmp_path) == []


async def test_an_unknown_hpa_and_two_ways_at_once_are_errors(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await two_hpas(world)
    capsys.readouterr()
    assert await explain(world, "wob", "--save", str(tmp_path / "web.jsonl")) == 1
    assert "there is no HPA" in capsys.readouterr().err
    assert await explain(world, "web", "--save", str(tmp_path / "web.jsonl"), "--last", "3") == 2
    assert "exclude each other" in capsys.readouterr().err
    assert await names(tmp_path) == []
