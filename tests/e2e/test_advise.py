"""`hpad advise` on a week of twenty HPAs in a real Prometheus: twelve with one planted fault each, eight good ones.

The past comes from a plain simulation of Kubernetes' HPA (tests/support/plain_hpa.py), which shares no code with hpad;
the same program checks the figures of the advice.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support import advice_seeds, advice_seeds_server
from support.advice_seeds_server import Week
from support.plain_hpa import PERIOD

from hpad.lab.servers.prometheus import ABSENT, PrometheusServer

pytestmark = [pytest.mark.prometheus, pytest.mark.skipif(not PrometheusServer.installed(), reason=ABSENT)]
SEED = 1
SCRAPE = 60
CASES = [*advice_seeds.FAULTY, *advice_seeds.GOOD]


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Week]:
    yield from advice_seeds_server.serve(tmp_path_factory.mktemp("week"), SEED)


@pytest.fixture(scope="module")
def found(week: Week) -> dict[str, Any]:
    """What the command says of each HPA, by name."""
    command = [sys.executable, "-m", "hpad", "advise", *week.arguments, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["unread"] == []
    return {item["name"]: item for item in answer["items"]}


def test_every_hpa_is_assessed(week: Week, found: dict[str, Any]) -> None:
    assert [case.name for case in week.cases.values()] == CASES
    assert sorted(found) == sorted(week.cases)


@pytest.mark.parametrize("name", CASES)
def test_facts_are_those_of_the_simulation(week: Week, found: dict[str, Any], name: str) -> None:
    """Prometheus sees the counts once a minute: each rescale is seen up to that much too late."""
    run, facts = week.runs[name], found[name]["facts"]
    case = week.cases[name]
    rescales = sum(before != after for before, after in zip(run.before, run.after, strict=True))
    slack = (rescales * SCRAPE + 3 * SCRAPE) / 3600
    assert facts["replicaHours"] == pytest.approx(run.replica_hours(), abs=slack, rel=0.001)
    assert facts["seconds"] == pytest.approx(len(run.after) * PERIOD, abs=3 * SCRAPE)
    assert facts["lowest"] >= min(run.before)
    assert facts["highest"] <= max(run.before)
    assert facts["rescales"] <= rescales
    failing = run.active.count(False) * PERIOD
    assert sum(facts["secondsFailing"].values()) == pytest.approx(failing, abs=20 * SCRAPE)
    low, high = case.bounds(0)
    at_maximum = sum(count >= high for count in run.before) * PERIOD if high > low else 0
    assert facts["secondsAtMax"] == pytest.approx(at_maximum, abs=slack * 3600 + SCRAPE)
