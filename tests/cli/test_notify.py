"""`hpad notify test`: one message to each destination."""

import asyncio
from pathlib import Path

import msgspec
import yaml
from aiohttp import web
from support.commands import called
from support.http_stub import serving


async def test_a_message_to_each_destination(tmp_path: Path) -> None:
    bodies = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        bodies.append(msgspec.json.decode(await request.read()))
        return web.Response(status=404 if request.path == "/gone" else 200, text=f"no hook {request.path}")

    async with serving(handle) as url:
        (tmp_path / "works").write_text(f"{url}/works")
        (tmp_path / "gone").write_text(f"{url}/gone")
        destinations = {
            "works": {"form": "slack", "url_file": str(tmp_path / "works")},
            "events": {"form": "cloudevents", "url": f"{url}/events"},
            "gone": {"form": "slack", "url_file": str(tmp_path / "gone")},
        }
        config = tmp_path / "hpad.yaml"
        config.write_text(
            yaml.safe_dump({"notify": {"destinations": destinations, "cluster": "prod"}}, sort_keys=False)
        )
        status, out, err = await asyncio.to_thread(called, "notify", "test", "--config", str(config))
        assert (status, err) == (1, "")
        assert out.splitlines() == ["works: sent", "events: sent", "gone: not sent: it answers 404: no hook ***"]
        assert "[prod] This is a test: messages of hpad arrive here." in bodies[0]["text"]
        assert bodies[1]["type"] == "io.hpad.test.begun"
        status, out, _ = await asyncio.to_thread(called, "notify", "test", "--config", str(config), "works")
        assert (status, out) == (0, "works: sent\n")
        status, _, err = await asyncio.to_thread(called, "notify", "test", "--config", str(config), "work")
        assert status == 2
        assert "there is no destination 'work'; there are works, events, gone" in err


def test_a_configuration_without_destinations(tmp_path: Path) -> None:
    (tmp_path / "hpad.yaml").write_text("{}\n")
    status, _, err = called("notify", "test", "--config", str(tmp_path / "hpad.yaml"))
    assert status == 2
    assert "the configuration has no destinations" in err
