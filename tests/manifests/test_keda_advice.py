"""What hpad advises in place of triggers that it does not carry over can be configured, and reads a number."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from support import http_stub, keda_corpus

from hpad import testing
from hpad.adapter import ExternalSample
from hpad.cli import main
from hpad.manifests.keda.unsupported import UNSUPPORTED
from hpad_adapters.http_json import HttpJson

FOLDER = keda_corpus.FOLDER / "advice"
OVER_HTTP: dict[str, Any] = yaml.safe_load((FOLDER / "http-json.yaml").read_text())
OTHER: dict[str, Any] = yaml.safe_load((FOLDER / "other.yaml").read_text())
WITHOUT_A_SOURCE = {"external-mock"}


def advised(text: str) -> set[str]:
    """Returns the adapters of the sources that an advice names."""
    return set(re.findall(r"\b([a-z-]+) source\b", text)) - {"metric"}


@pytest.mark.parametrize(("kind", "text"), UNSUPPORTED.items())
def test_each_advice_has_an_example(kind: str, text: str) -> None:
    adapters = advised(text)
    assert adapters or kind in WITHOUT_A_SOURCE
    for adapter in adapters:
        if adapter == "http-json":
            assert kind in OVER_HTTP or "serve the number as JSON" in text
        else:
            example = OTHER[kind if OTHER.get(kind, {}).get("adapter") == adapter else adapter]
            assert example["adapter"] == adapter
    assert (kind in OVER_HTTP) <= ("http-json" in adapters)


def test_check_accepts_each_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = {f"{kind}-over-http": {"adapter": "http-json", **each["source"]} for kind, each in OVER_HTTP.items()}
    (tmp_path / "hpad.yaml").write_text(yaml.safe_dump({"sources": sources | OTHER}))
    assert main(["check", str(tmp_path / "hpad.yaml")]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("kind", OVER_HTTP)
async def test_the_number_is_found_in_an_answer_of_the_server(kind: str, tmp_path: Path) -> None:
    example = OVER_HTTP[kind]
    [(name, metric)] = example["source"]["metrics"].items()
    stub = http_stub.Stub()
    stub.answers(example["answer"])
    async with http_stub.serving(stub.handle) as url, testing.context("source") as context:
        here = metric | {"url": re.sub(r"^https?://[^/]+", url, metric["url"])}
        settings = {"metrics": {name: here}, "headers": {"X": "y"}}
        adapter = HttpJson(msgspec.convert(settings, HttpJson.Settings), context)
        [answer] = await adapter.answer([testing.external(name)])
    assert isinstance(answer, ExternalSample), answer
    assert answer.values == (int(example["value"] * 1000),)
    assert stub.requests[0].method == ("POST" if "body" in metric else "GET")
