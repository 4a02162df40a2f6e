"""Serves a week of seeded HPAs in a real Prometheus, with their manifests in a folder."""

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from support import advice_seeds, advice_seeds_series
from support.advice_seeds import Case
from support.plain_world import Run

from hpad.lab.servers.prometheus import PrometheusServer


@dataclass(frozen=True)
class Week:
    """Twenty HPAs in a Prometheus: what they are, how they fared, and where their manifests are."""

    cases: Mapping[str, Case]
    runs: Mapping[str, Run]
    folder: Path
    url: str
    begin: int
    """Seconds since 1970: a Monday."""

    @property
    def arguments(self) -> list[str]:
        """Returns the arguments of `hpad advise` for all of the week."""
        times = (self.begin, self.begin + advice_seeds_series.WEEK - 60)
        first, last = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) for at in times)
        return ["--prometheus", self.url, "-f", str(self.folder), "--from", first, "--to", last]


def last_monday() -> int:
    """Returns the begin of the last week, UTC, that is over since a day or more."""
    days = int(time.time()) // 86_400 - 8
    return (days - (days + 3) % 7) * 86_400  # 1970 began on a Thursday


def serve(folder: Path, seed: int, names: Collection[str] = ()) -> Iterator[Week]:
    """Makes the week of a seed, and serves it, for a fixture: all HPAs, in a minute, or those of these names."""
    cases, begin = advice_seeds.cases(seed, names), last_monday()
    scrapes = advice_seeds_series.Scrapes(begin)
    runs = {name: case.run() for name, case in cases.items()}
    around = [(case, case.run()) for case in advice_seeds.bystanders(seed, cases)]
    text, manifests = folder / "week.om", folder / "hpas"
    with text.open("w") as file:
        advice_seeds_series.write(file, [*((cases[name], runs[name]) for name in cases), *around], scrapes, seed)
    manifests.mkdir()
    for name, case in cases.items():
        (manifests / f"{case.namespace}-{name}.yaml").write_text(yaml.safe_dump(case.manifest, sort_keys=False))
    server = PrometheusServer(history=text, arguments=[f"--query.lookback-delta={scrapes.lookback}"])
    asyncio.run(server.start())
    text.unlink()
    yield Week(cases, runs, manifests, server.url, begin)
    asyncio.run(server.stop())
