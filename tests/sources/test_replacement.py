"""A reload replaces the sources; replaced and rejected ones are closed."""

import asyncio
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hpad import settings, testing
from hpad.adapter import AdapterError, Context
from hpad.clock import SystemClock
from hpad.sources import plugins, replacement
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
    sources = replacement.Sources(gatherer(made), SystemClock())
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
    sources = replacement.Sources(gatherer(made), SystemClock())
    await sources.start()
    kept = list(made.made)
    with pytest.raises(replacement.SourcesRejected, match=r'^new\.yaml: source "bad": adapter "broken"'):
        await sources.replace(gatherer(made, quick="good", bad="broken"), patience=0.0)
    rejected = {context.name: context.http.closed for context in made.made if context not in kept}
    assert rejected["quick"]
    assert all(rejected.values())
    await sources.aclose()


@pytest.mark.usefixtures("outsider")
async def test_sources_replaced_a_moment_ago_are_closed_with_the_others() -> None:
    made = RecordedContexts()
    sources = replacement.Sources(gatherer(made, one="good"), SystemClock())
    await sources.start()
    await sources.replace(gatherer(made, two="good"), patience=60.0)
    await sources.aclose()
    assert {"one", "two"} <= {context.name for context in made.made}
    assert all(context.http.closed for context in made.made)


def configured(name: str, url: str, adapter: str = "numbers", **fields: Any) -> settings.SourceSettings:
    match = fields.pop("match", (settings.Match(metrics=(f"{name}_*",)),))
    return settings.SourceSettings(
        name=name, adapter=adapter, settings={"url": url}, origin="hpad.yaml", match=match, **fields
    )


async def values(sources: replacement.Sources, *names: str) -> list[object]:
    """Returns the value of each metric, or the message of its error."""
    asked = sources.ask([testing.external(name) for name in names], deadline=60)
    await asked.wait()
    return [answer.message if isinstance(answer, AdapterError) else answer.values[0] for answer in asked.answers()]


@pytest.mark.usefixtures("outsider")
async def test_unchanged_sources_go_on_with_their_connections_and_answers() -> None:
    """Also if the metrics change that are sent to them; sources that a rejected reload shares go on as well."""
    made = RecordedContexts()

    def gathered(*sources: settings.SourceSettings, period: float = 15.0) -> Gatherer:
        return Gatherer(sources, contexts=made, period=period)

    def opened() -> list[str]:
        names = [context.name for context in made.made if context.name in ("one", "two")]
        made.made.clear()
        return names

    sources = replacement.Sources(gathered(configured("one", "a"), configured("two", "b")), SystemClock())
    await sources.start()
    first = {context.name: context.http for context in made.made}
    assert await values(sources, "one_x") == [7000]
    opened()
    rejected = gathered(configured("one", "a"), configured("bad", "", "broken"))
    with pytest.raises(replacement.SourcesRejected):
        await sources.replace(rejected, patience=0.0)
    other = configured("one", "a", match=(settings.Match(metrics=("other",)),))
    await sources.replace(gathered(other, configured("two", "c")), patience=0.0)
    assert opened() == ["two"]
    while not first["two"].closed:  # noqa: ASYNC110  # nothing signals it
        await asyncio.sleep(0.01)
    assert not first["one"].closed
    assert await values(sources, "other") == [7000]
    assert [report.asked for report in sources.reports() if report.name in ("one", "two")] == [2, 0]
    await sources.replace(gathered(other, configured("two", "c"), period=3.0), patience=0.0)
    assert sorted(opened()) == ["one", "two"]
    await sources.aclose()
    assert all(session.closed for session in first.values())


@pytest.mark.usefixtures("outsider")
async def test_a_source_is_built_anew_once_a_file_that_it_keeps_is_right(tmp_path: Path) -> None:
    file, made = tmp_path / "rules", RecordedContexts()
    file.write_text("1")
    source = configured("kept", str(file), "keeper", limits=settings.SourceLimits(fresh=timedelta(0)))
    sources = replacement.Sources(Gatherer([source], contexts=made), SystemClock())
    await sources.start()
    assert not await sources.outdated()
    for text, problem in (("none", "url: 'none' is not a number"), ("13", "url: 13 is unlucky")):
        file.write_text(text)
        assert await sources.outdated()
        with pytest.raises(replacement.SourcesRejected, match=f'^hpad.yaml: source "kept": {problem}$') as rejected:
            await sources.replace(Gatherer([source], contexts=made), patience=0.0)
        assert list(rejected.value.files) == [str(file)]
        assert await values(sources, "kept_x") == [1]
    file.write_text("200")
    await sources.replace(Gatherer([source], contexts=made), patience=0.0)
    assert not await sources.outdated()
    assert await values(sources, "kept_x") == [200]
    await sources.aclose()


@pytest.mark.usefixtures("outsider")
async def test_a_source_that_could_not_be_prepared_at_the_start_is_built_anew(tmp_path: Path) -> None:
    file, made = tmp_path / "rules", RecordedContexts()
    source = configured("kept", str(file), "keeper")
    sources = replacement.Sources(Gatherer([source], contexts=made), SystemClock())
    await sources.start()
    assert "a bug of the adapter" in str((await values(sources, "kept_x"))[0])  # FileNotFoundError
    await sources.replace(Gatherer([source], contexts=made), patience=0.0)
    file.write_text("5")
    assert await sources.outdated()
    await sources.replace(Gatherer([source], contexts=made), patience=0.0)
    assert await values(sources, "kept_x") == [5]
    await sources.aclose()
    assert all(context.http.closed for context in made.made)
