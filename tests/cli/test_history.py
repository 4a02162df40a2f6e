"""`hpad sources history`, and the graph that it draws."""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support import prometheus_lab

from hpad.adapter import AdapterError, Answer, Query
from hpad.cli import main, output
from hpad.lab.servers.prometheus import PrometheusServer
from hpad_adapters.prometheus import Prometheus

METRICS = {"depth": {"query": 'sum(queue_depth{namespace="shop",<<.LabelMatchers>>}) by (<<.GroupBy>>)'}}
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    yield from prometheus_lab.serve(prometheus_lab.steady(past=600, orders=80))


@pytest.fixture
def config(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A configuration with a Prometheus (which need not run) and a file."""
    running = "server" in request.fixturenames
    url = request.getfixturevalue("server").url if running else "http://127.0.0.1:9"
    prometheus = {"adapter": "prometheus", "url": url, "metrics": METRICS}
    file = tmp_path / "hpad.yaml"
    file.write_text(json.dumps({"sources": {"prom": prometheus, "numbers": {"adapter": "static", "file": "x"}}}))
    return str(file)


def command(config: str, *arguments: str) -> list[str]:
    return ["sources", "history", "--config", config, *arguments]


@pytest.mark.prometheus
def test_a_graph_and_a_table(server: PrometheusServer, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the last twenty minutes, the first ones have no samples."""
    assert main(command(config, "prom", "depth", "--selector", "queue=orders", "--since", "20m", "--step", "30s")) == 0
    shown = capsys.readouterr().out
    assert 'query:      sum(queue_depth{namespace="shop",queue="orders"}) by ()\n' in shown
    assert "every 30s\n" in shown
    (top,) = [line for line in shown.splitlines() if line.startswith("      80 ┤")]
    assert top.endswith("███")
    (bottom,) = [line for line in shown.splitlines() if line.startswith("      10 ┤")]
    assert bottom.startswith("      10 ┤····")
    rows = [line.split() for line in shown.splitlines() if line.startswith("20") and " 80 " in line]
    assert {tuple(row[2:5]) for row in rows} == {("80", "80", "80")}
    assert re.search(r"no value at [1-9]\d* of 41 times", shown.splitlines()[-1])
    assert "\x1b" not in shown


@pytest.mark.prometheus
def test_every_point_as_json(server: PrometheusServer, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    request = ("prom", "depth", "--selector", "queue=orders", "--since", "20m", "--step", "1m", "-o", "json")
    assert main(command(config, *request)) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["source"], found["metric"], found["step"]) == ("prom", "depth", 60.0)
    assert len(found["points"]) == 21
    assert found["points"][0]["time"] == found["start"]
    assert found["points"][-1] == {"value": "80", "values": ["80"], "time": found["end"]}
    assert "error" in found["points"][0]


@pytest.mark.prometheus
def test_a_metric_without_any_value(server: PrometheusServer, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(config, "prom", "depth", "--selector", "queue=none")) == 1
    assert "the metric had no value at any time; last error: no values for External metric" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["prom", "depht"], 1, 'answers no External metric "depht" (did you mean "depth"?)'),
        (
            ["numbers", "x"],
            1,
            'source "numbers" (adapter static) has no history; sources of these adapters do: prometheus',
        ),
        (["prom", "depth", "--since", "soon"], 2, "--since: 'soon' is not a span"),
        (["prom", "depth", "--since", "0s"], 2, "--since: '0s' is not a span"),
        (["prom", "depth", "--since", "30d", "--step", "1s"], 2, "--step: 1s makes more than 11000 values"),
        (["prom", "depth", "--since", "1m", "--step", "1h"], 2, "--step: 1h is longer than the whole span"),
        (["prom", "depth"], 1, 'Prometheus "prom" (http://127.0.0.1:9) cannot be reached'),
    ],
)
def test_invalid_arguments(
    config: str, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, message: str
) -> None:
    assert main(command(config, *arguments)) == status
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("outcome", ["answered", "raised", "bug"])
def test_no_error_of_a_history_shows_a_secret(
    outcome: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def history(self: Prometheus, query: Query, times: Sequence[datetime]) -> list[Answer]:
        if outcome == "bug":
            raise RuntimeError("with hunter22")
        error = AdapterError("refused: me with hunter22")
        if outcome == "raised":
            raise error
        return [error] * len(times)

    monkeypatch.setattr(Prometheus, "history", history)
    prometheus = {"adapter": "prometheus", "url": "http://127.0.0.1:9", "metrics": METRICS}
    file = tmp_path / "hpad.yaml"
    file.write_text(json.dumps({"sources": {"prom": {**prometheus, "username": "me", "password": "hunter22"}}}))
    assert main(command(str(file), "-o", form, "prom", "depth", "--since", "1m")) == 1
    shown = "".join(capsys.readouterr())
    assert "hunter22" not in shown
    assert ("its adapter raised an exception" if outcome == "bug" else "refused: me with ***") in shown


def drawn(*values: int | None, width: int = 26, span: timedelta = timedelta(hours=1)) -> list[str]:
    return output.graph(values, BEGIN, BEGIN + span, width)


def test_a_missing_value_is_drawn_differently_from_zero() -> None:
    lines = drawn(0, None, 8000)
    assert lines[0] == "       8 ┤          █████"
    assert lines[7] == "       1 ┤▁▁▁▁▁·····█████"


def test_negative_values() -> None:
    lines = drawn(-4000, 0, 4000)
    assert [line.split(" ┤")[0].strip() for line in lines[:8]] == ["4", "3", "2", "1", "0", "-1", "-2", "-3"]
    assert lines[7] == "      -3 ┤▁▁▁▁▁██████████"
    assert lines[3] == "       1 ┤          █████"


def test_many_values_show_the_highest_of_each_column() -> None:
    values = [1000] * 1600
    values[805] = 9000
    lines = drawn(*values)
    assert lines[0].count("█") == 1
    assert max(map(len, lines)) <= 26


@pytest.mark.parametrize("values", [(0,), (0, 0, 0), (5, 5), (None, 7)])
def test_constant_values_can_be_drawn(values: tuple[int | None, ...]) -> None:
    assert len(drawn(*values)) == output.ROWS + 2


def test_without_any_value_the_graph_is_empty() -> None:
    assert drawn(None, None) == []


def test_the_axis_shows_times() -> None:
    lines = drawn(*range(0, 60_000, 1000), width=80)
    assert lines[-1].split()[0] == "12:00"
    assert lines[-1].split()[-1] == "13:00"
    days = drawn(*range(0, 60_000, 1000), width=80, span=timedelta(days=3))
    assert days[-1].split()[:2] == ["01-01", "12:00"]


@pytest.mark.prometheus
@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_graph_fits_the_terminal(
    server: PrometheusServer,
    config: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    monkeypatch.setattr(output, "width", lambda: width)
    assert main(command(config, "prom", "depth", "--selector", "queue=orders", "--since", "20m")) == 0
    lines = capsys.readouterr().out.splitlines()
    drawing = [line for line in lines if "┤" in line or "┴" in line]
    assert len(drawing) == output.ROWS + 1
    assert max(map(len, drawing)) <= width
