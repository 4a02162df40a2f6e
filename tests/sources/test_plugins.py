"""Foreign adapters that misbehave: only their own metrics are affected, and errors name them."""

import asyncio
import shutil
import subprocess
import sys
import threading
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hpad import clock as clocks
from hpad import settings, testing
from hpad.adapter import AdapterError, Answer, ExternalSample
from hpad.sources import plugins
from hpad.sources.manager import Gatherer
from hpad.sources.plugins import Contexts

DIST_INFO = {
    "METADATA": "Metadata-Version: 2.1\nName: hpad-weather\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "entry_points.txt": "[hpad.adapters]\nweather = hpad_weather:Weather\n",
    "RECORD": "",
}
WEATHER = '''
import msgspec
from hpad.adapter import AdapterError, Context, ExternalSample, one_by_one


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """Where it rains.

    rain: town -> millimetres.
    """

    rain: dict[str, int]


class Weather:
    """External metrics by town: `rain`, with the selector `town=…`."""

    serves = frozenset({"External"})
    metrics = ("rain",)
    Settings = Settings

    def __init__(self, settings: Settings, context: Context) -> None:
        self._rain, self._clock = settings.rain, context.clock

    async def answer(self, queries):
        return await one_by_one(queries, self._one)

    async def _one(self, query):
        town = query.selector.requirements[0].values[0]
        if town not in self._rain:
            raise AdapterError(f'nothing is known of "{town}"', "spec")
        return ExternalSample((self._rain[town] * 1000,), self._clock.now())

    async def aclose(self) -> None:
        """Nothing is open."""
'''
WILD = """
from datetime import timedelta
import msgspec
from hpad.adapter import ExternalSample

class Settings(msgspec.Struct):
    mode: str = ""

class Wild:
    serves = frozenset({"External"})
    Settings = Settings
    def __init__(self, settings, context):
        self.mode, self.clock = settings.mode, context.clock
    async def answer(self, queries):
        now = self.clock.now()
        if self.mode == "raise":
            raise RuntimeError("x")
        if self.mode == "block":
            self.clock.hands += 1.2
        if self.mode == "future":
            now += timedelta(days=1)
        value = {"nan": float("nan"), "inf": float("inf"), "zero": -0.0}.get(self.mode, 1000)
        return [ExternalSample((value,), now)] * (len(queries) + (self.mode == "length"))
    async def aclose(self):
        pass
"""

SLEEPY = """
import pathlib, time
for _ in range(6000):
    if pathlib.Path({end!r}).exists():
        break
    time.sleep(0.01)
class Sleepy: pass
"""


def publish(folder: Path, module: str, code: str, entry: str) -> None:
    """Writes the files of an installed package, as pip does."""
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[hpad.adapters]\n{entry}\n")


@pytest.fixture
def wild(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path, "hpad_wild", WILD, "wild = hpad_wild:Wild")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "hpad_wild", raising=False)


class HandClock(clocks.SystemClock):
    """Its seconds pass only when an adapter adds them: a busy machine does not look like an adapter that blocks."""

    hands = 0.0

    def monotonic(self) -> float:
        return self.hands


async def asked(*sources: settings.SourceSettings) -> list[Answer]:
    """Returns the answers to one metric of each source, `NAME_x`."""
    made = Gatherer(sources, contexts=Contexts(HandClock()))
    await made.start()
    try:
        queries = [testing.external(f"{source.name}_x") for source in sources]
        return await made.gather(queries, deadline=9)
    finally:
        await made.aclose()


def source(name: str, **fields: object) -> settings.SourceSettings:
    match = (settings.Match(metrics=(f"{name}_*",)),)
    return settings.SourceSettings(name=name, adapter="wild", settings=fields, match=match)


@pytest.mark.usefixtures("wild")
@pytest.mark.parametrize(
    ("mode", "complaint"),
    [
        ("raise", 'cannot answer "bad_x": its adapter raised an exception, a bug of the adapter'),
        ("nan", "the value nan"),
        ("inf", "the value inf"),
        ("zero", "the value -0.0"),
        ("length", "gave 2 answers to 1 queries"),
        ("future", "a timestamp more than five minutes in the future"),
    ],
)
async def test_invalid_answers_are_named_and_affect_no_other_source(mode, complaint):
    bad, good = await asked(source("bad", mode=mode), source("good"))
    assert isinstance(good, ExternalSample)
    assert isinstance(bad, AdapterError)
    assert bad.blame == ("source" if mode == "future" else "bug")
    assert bad.message.startswith('source "bad"')
    assert complaint in bad.message


@pytest.mark.usefixtures("wild")
async def test_an_adapter_that_blocks_the_loop_is_named():
    """The adapter lets 1.2 seconds pass between two awaits, as a blocking call does."""
    bad, good = await asked(source("bad", mode="block"), source("good"))
    assert isinstance(good, ExternalSample)
    assert bad == AdapterError('source "bad" blocked the event loop for 1.2s, a bug of its adapter', "bug")


async def test_an_import_that_hangs_ends_at_its_time_limit(tmp_path, monkeypatch):
    end = tmp_path / "end"
    publish(tmp_path, "hpad_sleepy", SLEEPY.format(end=str(end)), "sleepy = hpad_sleepy:Sleepy")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AdapterError, match=r"was still being imported after 0\.2s") as raised:
        await plugins.load("sleepy", 0.2)
    assert raised.value.blame == "bug"
    (importing,) = [thread for thread in threading.enumerate() if thread.name == "import sleepy"]
    end.touch()
    await asyncio.to_thread(importing.join, 60)


@pytest.fixture(scope="module")
def weather(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an installed foreign package."""
    target, wheel = (
        tmp_path_factory.mktemp("site"),
        tmp_path_factory.mktemp("dist") / "hpad_weather-1.0-py3-none-any.whl",
    )
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("hpad_weather.py", WEATHER)
        for name, text in DIST_INFO.items():
            archive.writestr(f"hpad_weather-1.0.dist-info/{name}", text)
    with_uv = ["uv", "pip", "install", "--python", sys.executable]
    pip = with_uv if shutil.which("uv") else [sys.executable, "-m", "pip", "install"]  # uv's environments lack pip
    subprocess.run([*pip, "--quiet", "--no-index", "--no-deps", "--target", target, wheel], check=True)
    return target


async def test_an_installed_foreign_package_is_found_and_keeps_the_contract(weather, monkeypatch):
    monkeypatch.syspath_prepend(weather)
    assert "weather" in await asyncio.to_thread(plugins.names)
    adapter = await plugins.load("weather")
    queries = [testing.external("rain", f"town={town}") for town in ("bath", "york", "atlantis")]
    async with testing.context("weather") as context:
        built = adapter(adapter.Settings(rain={"bath": 7, "york": 2}), context)
        bath, york, nowhere = await testing.check_adapter(built, queries)
    assert isinstance(bath, ExternalSample)
    assert isinstance(york, ExternalSample)
    assert (bath.values, york.values) == ((7000,), (2000,))
    assert nowhere == AdapterError('nothing is known of "atlantis"', "spec")
    assert bath.timestamp <= datetime.now(UTC)
    monkeypatch.delitem(sys.modules, "hpad_weather")
