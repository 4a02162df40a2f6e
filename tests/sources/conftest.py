"""A package of foreign adapters, installed for a test."""

import sys
from pathlib import Path

import pytest

CODE = """
import asyncio
from pathlib import Path
import msgspec
from hpad.adapter import AdapterError, ExternalSample

class Broker(msgspec.Struct, forbid_unknown_fields=True):
    host: str
    port: int = 1

class Settings(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    password: str = ""
    depth: int = 1
    broker: Broker | None = None

    def __post_init__(self):
        if self.depth < 0:
            raise ValueError("depth: must not be negative")

class Good:
    serves = frozenset({"External"})
    Settings = Settings
    def __init__(self, settings, context):
        if settings.url == "boom":
            raise RuntimeError("secret in here")
        self.settings = settings
    async def answer(self, queries): return []
    async def aclose(self): pass

class Numbers(Good):
    def __init__(self, settings, context):
        self.clock, self.url = context.clock, settings.url
    async def answer(self, queries):
        return [await self.one() for _ in queries]
    async def one(self):
        if self.url == "hang":
            await asyncio.Event().wait()
        if self.url == "raise":
            raise RuntimeError("secret")
        return None if self.url == "short" else ExternalSample((7000,), self.clock.now())
    async def aclose(self):
        if self.url == "sad":
            raise RuntimeError("secret")

class Own(msgspec.Struct, forbid_unknown_fields=True):
    depth: int
    number: int = 0
    def __post_init__(self):
        if self.depth < 0:
            raise ValueError("depth: must not be negative")

class Open(Numbers):
    QuerySchema = Own
    @staticmethod
    def closed(settings):
        return "depth: must be 1" if settings.depth == 2 else ""
    async def answer(self, queries):
        return [await self.one() if query.definition is None else await self.deep(query) for query in queries]
    async def deep(self, query):
        depth = query.definition.metric.depth
        if depth == 99:
            await asyncio.Event().wait()
        if depth == 13:
            return AdapterError('no value for "own query"')
        return ExternalSample((depth * 1000,), self.clock.now())

class Keeper(Good):
    def __init__(self, settings, context):
        self.files, self.clock = (settings.url,), context.clock
    async def prepare(self):
        text = await asyncio.to_thread(Path(self.files[0]).read_text)
        if not text.isdigit():
            raise AdapterError(f"url: {text!r} is not a number", "spec")
        self.number = int(text)
    @staticmethod
    def flaws(settings):
        if Path(settings.url).read_text() == "13":
            yield ("url",), "13 is unlucky"
    async def answer(self, queries):
        return [ExternalSample((self.number,), self.clock.now()) for _ in queries]

class NoServes(Good):
    serves = frozenset({"Everything"})

class NoSettings(Good):
    Settings = dict

function = lambda settings, context: None
"""
ENTRY_POINTS = """[hpad.adapters]
good = outsider_adapters:Good
numbers = outsider_adapters:Numbers
open = outsider_adapters:Open
keeper = outsider_adapters:Keeper
no-serves = outsider_adapters:NoServes
no-settings = outsider_adapters:NoSettings
function = outsider_adapters:function
absent = outsider_adapters:Absent
no-module = outsider_adapters.nothing:Good
broken = outsider_broken:Good
"""


@pytest.fixture
def outsider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes an installed package, as pip does."""
    (tmp_path / "outsider_adapters.py").write_text(CODE)
    (tmp_path / "outsider_broken.py").write_text("raise RuntimeError('half installed')")
    info = tmp_path / "outsider-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outsider\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("outsider_adapters", "outsider_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
