"""`hpad sources test` with a real Prometheus."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import prometheus_lab

from hpad.cli import main
from hpad.lab.servers.prometheus import PrometheusServer

pytestmark = pytest.mark.prometheus

METRICS = {
    "depth": {"query": 'sum(queue_depth{namespace="<<.Namespace>>",<<.LabelMatchers>>}) by (<<.GroupBy>>)'},
    "by_hpa": {"query": 'sum(queue_depth{namespace="shop",queue="<<.HPA>>"})'},
}


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    yield from prometheus_lab.serve(prometheus_lab.steady(orders=80, mails=7))


@pytest.fixture
def config(server: PrometheusServer, tmp_path: Path) -> str:
    file = tmp_path / "hpad.yaml"
    source = {"adapter": "prometheus", "url": server.url, "metrics": METRICS, "queries": {"namespaces": ["shop"]}}
    file.write_text(json.dumps({"sources": {"prom": source}}))
    return str(file)


def test_the_query_is_shown_with_its_variables_filled_in(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sources", "test", "--config", config, "prom", "depth", "-n", "shop", "--selector", "queue=orders"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert 'query:      sum(queue_depth{namespace="shop",queue="orders"}) by ()\n' in shown
    assert "an HPA:     sees 80\n" in shown
    assert main([*command, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["query"] == 'sum(queue_depth{namespace="shop",queue="orders"}) by ()'


def test_the_query_contains_the_name_of_the_hpa(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sources", "test", "--config", config, "prom", "by_hpa", "--hpa", "mails"]) == 0
    shown = capsys.readouterr().out
    assert 'query:      sum(queue_depth{namespace="shop",queue="mails"})\n' in shown
    assert "sees 7\n" in shown


def test_a_query_that_an_autoscaler_brings_along(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sources", "test", "--config", config, "prom", "orders", "--parameters"]
    query = '{query: \'sum(queue_depth{queue="<<index .Labels "queue">>"})\'}'
    assert main([*command, query, "-n", "shop", "--selector", "queue=orders"]) == 0
    shown = capsys.readouterr().out
    assert 'query:      sum(queue_depth{queue="orders"})\n' in shown
    assert "sees 80\n" in shown
    for arguments, error in (
        ([query], 'source "prom" is not open to queries of namespace "default"'),
        (["{query: (}", "-n", "shop"], "query: the brackets do not match"),
        (["sum(x)", "-n", "shop"], "is not a mapping, such as '{query: sum(x)}'"),
    ):
        assert main([*command, *arguments]) != 0
        assert error in capsys.readouterr().err


def test_the_query_is_shown_even_if_it_fails(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sources", "test", "--config", config, "prom", "depth", "--selector", "queue=none"]) == 1
    shown = capsys.readouterr().out
    assert 'query:      sum(queue_depth{namespace="default",queue="none"}) by ()\n' in shown
    assert "error:" in shown


def test_a_label_that_chooses_the_server_is_no_part_of_the_query(
    server: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hpad.yaml"
    source = {"adapter": "prometheus", "url": server.url, "metrics": METRICS}
    sources = {
        name: {**source, "match": [{"metrics": ["depth"], "labels": {"cluster": name}}]} for name in ("eu", "us")
    }
    file.write_text(json.dumps({"sources": sources}))
    command = ["--config", str(file), "us", "depth", "-n", "shop", "--selector", "queue=orders,cluster=us"]
    assert main(["sources", "test", *command]) == 0
    shown = capsys.readouterr().out
    assert 'query:      sum(queue_depth{namespace="shop",queue="orders"}) by ()\n' in shown
    assert "an HPA:     sees 80\n" in shown
