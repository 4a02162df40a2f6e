"""Storms and scale-out of the cluster bench: the stub server's part, the figures, and short runs. No time is judged."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tools.bench.cluster import options
from tools.bench.cluster.measure import Late
from tools.bench.cluster.population import Population
from tools.bench.cluster.scraped import Histogram
from tools.bench.cluster.storm import Storm, logged
from tools.bench.cluster.storms import NAMES
from tools.bench.cluster.stub import http
from tools.bench.cluster.stub.api import Api
from tools.bench.cluster.stub.http import Request
from tools.bench.cluster.stub.http1 import Connection
from tools.bench.cluster.stub.storms import Storms
from tools.bench.cluster.stub.traffic import Traffic

ROOT = Path(__file__).resolve().parent.parent
POPULATION = Population(hpas=5, pods=2, metrics=1, per_namespace=2)
HPAS, PODS = "/apis/autoscaling/v2/horizontalpodautoscalers", "/api/v1/pods"
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/team-{}/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
STATUS, LISTS = "update horizontalpodautoscalers/status", "list pods.metrics.k8s.io"


def asked(api: Api, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Returns status and document of an answer."""
    path, _, query = path.partition("?")
    content = b"" if body is None else json.dumps(body).encode()
    answer = api.handle(Connection(api.handle), Request(method, path, query, content, b""))
    assert answer is not None
    return answer.status, json.loads(answer.body)


def names(api: Api, path: str) -> list[str]:
    return [each["metadata"]["name"] for each in asked(api, "GET", path)[1]["items"]]


def test_a_deleted_namespace_has_no_objects_and_no_metrics() -> None:
    api = Api(POPULATION)
    path = "/apis/autoscaling/v2/namespaces/team-{}/horizontalpodautoscalers/web-{}"
    last, other = path.format(2, 4), path.format(1, 3)
    Storms(api, set()).delete_namespace()
    assert names(api, HPAS) == ["web-0", "web-1", "web-2", "web-3"]
    assert names(api, PODS) == [f"web-{number}-{index}" for number in range(4) for index in range(2)]
    assert names(api, METRICS.format(2)) == []
    assert asked(api, "GET", last)[0] == 404
    assert asked(api, "PUT", f"{last}/status", {})[0] == 404
    assert asked(api, "GET", other)[0] == 200


def test_the_pods_of_a_restart_have_other_names_also_in_the_metrics() -> None:
    api = Api(POPULATION)
    before, used = names(api, PODS), names(api, METRICS.format(0))
    asyncio.run(Storms(api, set()).restarted())
    after = names(api, PODS)
    assert len(after) == len(before)
    assert not set(after) & set(before)
    assert names(api, METRICS.format(0)) == after[: len(used)]


def test_changes_of_pods_have_versions_that_a_watch_can_continue_from() -> None:
    api = Api(POPULATION)
    asyncio.run(Storms(api, set()).restarted())
    changes = api.feeds["pods"].since(0)
    assert changes is not None
    read = [json.loads(change.line) for change in changes]
    assert [each["type"] for each in read] == ["DELETED", "ADDED"] * 10
    assert [int(each["object"]["metadata"]["resourceVersion"]) for each in read] == [each.version for each in changes]


def test_metrics_fail_for_the_time_of_an_outage() -> None:
    api = Api(POPULATION)
    commands = Storms(api, set()).commands()
    commands["fail-metrics"]()
    assert asked(api, "GET", METRICS.format(0))[0] == 503
    api.traffic.wrote(1, measured=False)
    commands["serve-metrics"]()
    assert asked(api, "GET", METRICS.format(0))[0] == 200
    assert not api.traffic.written


def test_leases_are_listed_by_their_labels() -> None:
    api = Api(POPULATION)
    for name, labels in (("a", {"group": "one"}), ("b", {"group": "two"}), ("c", {})):
        assert asked(api, "POST", LEASES, {"metadata": {"name": name, "labels": labels}})[0] == 201
    assert names(api, f"{LEASES}?labelSelector=group%3Dtwo") == ["b"]
    assert names(api, LEASES) == ["a", "b", "c"]


def test_an_event_that_happens_again_is_patched() -> None:
    events = "/api/v1/namespaces/team-0/events"
    api = Api(POPULATION)
    code, made = asked(api, "POST", events, {"metadata": {"generateName": "web-0."}, "count": 1})
    assert code == 201
    name = made["metadata"]["name"]
    code, patched = asked(api, "PATCH", f"{events}/{name}", {"count": 2})
    assert (code, patched["count"], patched["metadata"]["name"]) == (200, 2, name)


def test_all_connections_are_closed_at_once() -> None:
    closed: list[Connection] = []

    class Transport:
        def __init__(self, connection: Connection) -> None:
            self._connection = connection

        def abort(self) -> None:
            closed.append(self._connection)
            self._connection.connection_lost(None)

    api, connections = Api(POPULATION), set[http.Connection]()
    opened = [Connection(api.handle, connections) for _ in range(3)]
    for each in opened:
        each.connection_made(Transport(each))  # type: ignore[arg-type]
    opened[0].connection_lost(None)
    Storms(api, connections).disconnect()
    assert set(closed) == set(opened[1:])
    assert not connections


@pytest.fixture
def ticking() -> tuple[Traffic, list[float]]:
    now = [100.0]
    return Traffic(lambda: now[0]), now


def test_the_busiest_second_has_its_requests_by_their_names(ticking: tuple[Traffic, list[float]]) -> None:
    traffic, now = ticking
    for second, names_of in enumerate((["a"], ["a", "b", "a"], ["b", "b"])):
        now[0] = 100.0 + second
        for name in names_of:
            traffic.asked(name)
    counts = traffic.counts()
    assert counts["busiest"] == {"a": 2, "b": 1}
    assert counts["requests"] == {"a": 3, "b": 3}
    traffic.mark()
    traffic.asked("c")
    assert traffic.counts()["busiest"] == {"c": 1}
    assert traffic.counts()["requests"] == {"a": 3, "b": 3, "c": 1}


def test_the_gap_is_the_longest_time_without_a_status(ticking: tuple[Traffic, list[float]]) -> None:
    traffic, now = ticking
    for at, number in ((100.0, 1), (101.0, 2), (107.0, 1), (108.0, 2)):
        now[0] = at
        traffic.wrote(number, measured=number == 1)
    assert traffic.counts()["gap"] == 7.0
    assert (traffic.counts()["reconciled"], traffic.counts()["measured"]) == (2, 1)
    traffic.mark()
    now[0] = 110.0
    assert traffic.counts()["gap"] == 3.0, "still open"
    traffic.forget([1])
    assert traffic.counts()["gap"] == 2.0


HELD = Storm(
    "start", 10, period=15.0, recovered=9.0, late=Late(0.1, 2.0, 15.0), gap=30.0, stretch=0.1, stall=None,
    busiest={STATUS: 19, LISTS: 1}, busiest_before=10, peak=129.0, after=100.0, before=100.0, most=130.0,
    lists=1.0, logged={},
)  # fmt: skip


@pytest.mark.parametrize(
    ("broken", "change"),
    [
        (None, {}),
        ("recovered", {"recovered": None}),
        ("no herd", {"busiest": {STATUS: 21}}),
        (None, {"busiest": {STATUS: 20, "create events": 40, "patch events": 2}}),
        ("in time", {"late": Late(0.1, 2.0, 60.0)}),
        ("in time", {"gap": 30.5}),
        ("memory", {"peak": 131.0}),
        (None, {"gap": None, "late": Late()}),
    ],
)
def test_a_storm_says_which_promise_was_not_held(broken: str | None, change: dict[str, Any]) -> None:
    claims = msgspec.structs.replace(HELD, **change).claims()
    assert [name for name, held in claims.items() if not held] == ([broken] if broken else [])


def test_warnings_and_errors_of_a_log_are_counted_by_their_text(tmp_path: Path) -> None:
    log = tmp_path / "hpad.log"
    early, late = ({"level": "error", "event": text} for text in ("before", "it fails"))
    log.write_text(json.dumps(early) + "\n")
    offset = log.stat().st_size
    with log.open("a") as file:
        for line in (late, {"level": "info", "event": "it works"}, late):
            file.write(json.dumps(line) + "\n")
    assert logged(log, offset) == {"error: it fails": 2}


def test_histograms_of_replicas_are_added() -> None:
    merged = Histogram.merged([Histogram([(1.0, 1.0), (2.0, 3.0)]), Histogram([]), Histogram([(1.0, 2.0), (2.0, 2.0)])])
    assert merged.buckets == [(1.0, 3.0), (2.0, 5.0)]


def run(tmp_path: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    """Returns the text and the JSON file of a short run."""
    found = tmp_path / "found.json"
    done = bench("--short", "--json", str(found), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(found.read_text())


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tools.bench.cluster", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "tests"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_with_storms_has_figures_of_each(tmp_path: Path) -> None:
    text, found = run(tmp_path, "--storms")
    assert "what hpad does when much happens at once" in text
    assert found["runs"][0]["reconciles"] > 0
    storms = {each["name"]: each for each in found["storms"]}
    assert tuple(storms) == NAMES
    assert [each["hpas"] for each in found["storms"]] == [10, 5, 5, 5, 5, 5, 5]
    for each in storms.values():
        assert each["recovered"] is not None, each
        assert each["busiest"], each
        assert each["peak"] >= each["after"] > 0, each
        assert each["before"] > 0, each
        assert each["most"] > 0, each
    assert any(each["lists"] > 0 for each in storms.values())  # one that is over at once has none
    assert storms["metrics outage"]["gap"] is None
    assert storms["second outage"]["most"] == pytest.approx(1.1 * storms["metrics outage"]["peak"])
    assert storms["new leader"]["gap"] > 0
    assert any("cannot decide" in text for text in storms["metrics outage"]["logged"])
    assert any("list or watch failed" in text for text in storms["disconnected"]["logged"])


@pytest.mark.parametrize(
    ("problem", "arguments"),
    [
        ("need the stub", ["--storms", "--server", "embedded"]),
        ("know no --rounds", ["--storms", "--chart", "chart.svg"]),
        ("two namespaces", ["--storms", "--per-namespace", "0"]),
        ("two namespaces", ["--storms", "--hpas", "1000,50"]),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    problem: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parsed(arguments)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err
