"""The sources in the comments of config/hpad.yaml are valid settings of their adapters."""

from pathlib import Path

import pytest

from hpad import settings, testing
from hpad.adapter import Adapter
from hpad.sources import plugins

SAMPLE = Path(__file__).resolve().parents[2] / "config" / "hpad.yaml"


@pytest.fixture
def shown(tmp_path: Path) -> list[tuple[settings.SourceSettings, type[Adapter]]]:
    """The sources without their comment signs, with their adapters."""
    _, _, rest = SAMPLE.read_text(encoding="utf-8").partition("\nsources: {}")
    lines = rest.partition("\nroutes: []")[0].splitlines()
    file = tmp_path / "hpad.yaml"
    file.write_text("sources:\n" + "".join(f"{line[1:]}\n" for line in lines if line.startswith("#  ")))
    return [(source, plugins.adapter_class(source.adapter)) for source in settings.load(file, {}, {}).sources]


async def test_every_shown_source_can_be_built(shown: list[tuple[settings.SourceSettings, type[Adapter]]]) -> None:
    assert {"prometheus", "rabbitmq", "redis", "http-json"} <= {source.adapter for source, _ in shown}
    for source, kind in shown:
        async with testing.context(source.name) as context:
            adapter = plugins.instance(source, kind, context)
            await adapter.aclose()
