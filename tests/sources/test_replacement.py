"""A reload replaces the sources; replaced and rejected ones are closed."""

import asyncio
import sys
import threading
from pathlib import Path

import pytest

from hpad import settings
from hpad.adapter import Context
from hpad.clock import SystemClock
from hpad.sources import manager, plugins
from hpad.sources.manager import Gatherer

SLOW = """
from outsider_adapters import Good
import outsider_gate
outsider_gate.opened.wait(20)
Slow = Good
"""


class RecordedContexts(plugins.Contexts):
    """Records the contexts that it made."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.made: list[Context] = []

    def __call__(self, source: str, adapter: str) -> Context:
        context = super().__call__(source, adapter)
        self.made.append(context)
        return context


@pytest.fixture
def gate(outsider: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The import of the adapter "slow" ends when this is set."""
    (tmp_path / "outsider_gate.py").write_text("import threading\nopened = threading.Event()\n")
    (tmp_path / "outsider_slow.py").write_text(SLOW)
    points = tmp_path / "outsider-1.0.dist-info" / "entry_points.txt"
    points.write_text(points.read_text() + "slow = outsider_slow:Slow\n")
    for name in ("outsider_gate", "outsider_slow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import outsider_gate

    event: threading.Event = outsider_gate.opened
    return event


def gatherer(made: plugins.Contexts, **adapters: str) -> Gatherer:
    sources = [
        settings.SourceSettings(name=name, adapter=adapter, settings={"url": name}, origin="new.yaml")
        for name, adapter in adapters.items()
    ]
    return Gatherer(sources, contexts=made)


async def test_a_cancelled_replacement_leaves_no_session_open(gate: threading.Event) -> None:
    made = RecordedContexts()
    sources = manager.Sources(gatherer(made), SystemClock())
    await sources.start()
    kept = list(made.made)
    replacing = asyncio.create_task(sources.replace(gatherer(made, quick="good", late="slow"), patience=0.0))
    async with asyncio.timeout(60):
        while "quick" not in [context.name for context in made.made]:  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.01)
    replacing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await replacing
    gate.set()
    assert all(context.http.closed for context in made.made if context not in kept)
    assert not any(context.http.closed for context in kept)
    await sources.aclose()
    assert all(context.http.closed for context in made.made)


@pytest.mark.usefixtures("outsider")
async def test_rejected_sources_are_named_with_their_file_and_closed() -> None:
    made = RecordedContexts()
    sources = manager.Sources(gatherer(made), SystemClock())
    await sources.start()
    kept = list(made.made)
    with pytest.raises(manager.SourcesRejected, match=r'^new\.yaml: source "bad": adapter "broken"'):
        await sources.replace(gatherer(made, quick="good", bad="broken"), patience=0.0)
    rejected = {context.name: context.http.closed for context in made.made if context not in kept}
    assert rejected["quick"]
    assert all(rejected.values())
    await sources.aclose()


@pytest.mark.usefixtures("outsider")
async def test_sources_replaced_a_moment_ago_are_closed_with_the_others() -> None:
    made = RecordedContexts()
    sources = manager.Sources(gatherer(made, one="good"), SystemClock())
    await sources.start()
    await sources.replace(gatherer(made, two="good"), patience=60.0)
    await sources.aclose()
    assert {"one", "two"} <= {context.name for context in made.made}
    assert all(context.http.closed for context in made.made)
