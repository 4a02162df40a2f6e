"""The PromQL of the past of metrics, from the sources of the settings: routes, labels, and what fails."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from hpad import settings
from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, PastPromQL, Query
from hpad.api.hpa import HorizontalPodAutoscaler, OwnQuery, defaulted, from_builtins
from hpad.api.metadata import Key
from hpad.cli.advise_queries import own_queries
from hpad.clock import SystemClock
from hpad.sources import plugins

WINDOW = timedelta(minutes=2)


def external(name: str, **labels: str) -> dict[str, Any]:
    selector = {"selector": {"matchLabels": labels}} if labels else {}
    target = {"type": "AverageValue", "averageValue": "10"}
    return {"type": "External", "external": {"metric": {"name": name, **selector}, "target": target}}


def of_pods(name: str) -> dict[str, Any]:
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "5"}}}


def hpa(*metrics: dict[str, Any], namespace: str = "shop", name: str = "web", **labels: str) -> HorizontalPodAutoscaler:
    target = {"kind": "Deployment", "name": "front", "apiVersion": "apps/v1"}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9, "metrics": list(metrics)}
    return defaulted(from_builtins({"metadata": metadata, "spec": spec}))


def asked(folder: Path, text: str, *hpas: HorizontalPodAutoscaler) -> dict[str, PastPromQL]:
    """Returns the answers by HPA and address, as text."""
    file = folder / "hpad.yaml"
    file.write_text(text)
    given = settings.load(file, {}, {})

    async def run() -> dict[tuple[Key, str], PastPromQL]:
        return await own_queries(given, hpas, plugins.Contexts(SystemClock()), WINDOW)

    return {f"{key} {address}": found for (key, address), found in asyncio.run(run()).items()}


PROMETHEUS = """
sources:
  prom:
    adapter: prometheus
    url: http://127.0.0.1:9
    queries: {namespaces: [shop]}
    metrics:
      depth: {query: 'sum(depth{namespace="<<.Namespace>>",<<.LabelMatchers>>}) by (<<.GroupBy>>)'}
      of_target: {query: 'sum(x{hpa="<<.HPA>>",target="<<.Target>>",team="<<index .HPALabels "team">>"})'}
      busy: {query: 'sum(busy{<<.PodMatchers>>}) by (pod)', types: [Pods]}
"""


def test_selector_namespace_and_hpa_are_filled_in(tmp_path: Path) -> None:
    found = asked(
        tmp_path,
        PROMETHEUS,
        hpa(external("depth", queue="orders"), external("of_target"), team="a"),
        hpa(external("depth", queue="mails"), namespace="blog"),
    )
    assert {place: each.values for place, each in found.items()} == {
        "shop/web depth": 'sum(depth{namespace="shop",queue="orders"}) by ()',
        "shop/web of_target": 'sum(x{hpa="web",target="front",team="a"})',
        "blog/web depth": 'sum(depth{namespace="blog",queue="mails"}) by ()',
    }


def test_two_metrics_of_one_name_have_their_own(tmp_path: Path) -> None:
    found = asked(tmp_path, PROMETHEUS, hpa(external("depth", queue="a"), external("depth", queue="b")))
    assert [*found] == ["shop/web depth{queue=a}", "shop/web depth{queue=b}"]
    assert ['queue="a"' in each.values for each in found.values()] == [True, False]


def test_pods_have_no_query_because_their_labels_are_unknown(tmp_path: Path) -> None:
    (unknown,) = asked(tmp_path, PROMETHEUS, hpa(of_pods("busy"))).values()
    assert unknown == PastPromQL(
        problem="the labels of the pods of its target are not known: write its PromQL into the series file"
    )


def test_resources_and_metrics_of_no_source_are_left_out(tmp_path: Path) -> None:
    cpu = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    assert asked(tmp_path, PROMETHEUS, hpa(cpu, external("unknown"))) == {}
    assert asked(tmp_path, "tolerance: 0.1\n", hpa(external("depth"))) == {}


def test_a_query_that_an_autoscaler_brings_along(tmp_path: Path) -> None:
    own = hpa(external("mine", queue="orders"))
    query = {"query": 'max(jobs{queue="<<index .Labels "queue">>"})'}
    spec = msgspec.structs.replace(own.spec, queries=(OwnQuery("mine", "prom", query),))
    (found,) = asked(tmp_path, PROMETHEUS, msgspec.structs.replace(own, spec=spec)).values()
    assert found.values == 'max(jobs{queue="orders"})'


def test_a_label_that_chooses_the_source_is_no_part_of_the_query(tmp_path: Path) -> None:
    text = """
sources:
  eu: {adapter: rabbitmq, url: 'http://eu:15672', match: [{metrics: [queue_*], labels: {broker: eu}}]}
  us: {adapter: rabbitmq, url: 'http://us:15672', match: [{metrics: [queue_*], labels: {broker: us}}]}
"""
    (found,) = asked(tmp_path, text, hpa(external("queue_messages", queue="orders", broker="us"))).values()
    assert found.values.startswith('sum(rabbitmq_queue_messages_ready{vhost="/",queue="orders"}) + sum(')
    assert "[120s]" in found.published
    assert "acked_total" in found.acked


def test_a_wrong_selector_and_a_source_without_series_say_why(tmp_path: Path) -> None:
    (tmp_path / "numbers.yaml").write_text("constant: 7\n")
    text = f"""
sources:
  mq: {{adapter: rabbitmq, url: 'http://mq:15672'}}
  numbers: {{adapter: static, file: {tmp_path / "numbers.yaml"}}}
"""
    found = asked(tmp_path, text, hpa(external("constant"), external("queue_messages")))
    assert found["shop/web constant"].problem == (
        'the source "numbers" (adapter static) does not know which series hold its past: write their PromQL into the'
        " series file"
    )
    assert 'External metric "queue_messages" names no queue' in found["shop/web queue_messages"].problem


class Odd:
    """An adapter whose `past` does what a test wants, and counts its calls."""

    serves: ClassVar[frozenset[str]] = frozenset({EXTERNAL})
    calls: ClassVar[list[str]] = []
    seconds: ClassVar[float] = 0.0

    class Settings(msgspec.Struct):
        token: str = ""

    def __init__(self, settings: "Odd.Settings", context: Context) -> None:
        self._token = settings.token

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        return [AdapterError("never asked")] * len(queries)

    async def past(self, query: Query, window: timedelta) -> PastPromQL:
        self.calls.append(query.name)
        if query.name == "bug":
            raise RuntimeError(f"with {self._token}")
        if query.name == "empty":
            return PastPromQL()
        await asyncio.sleep(self.seconds)
        raise AdapterError(f"refused {self._token}")

    async def aclose(self) -> None:
        """Nothing."""


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> type[Odd]:
    async def load(name: str) -> type[Odd]:
        return Odd

    monkeypatch.setattr(plugins, "load", load)
    monkeypatch.setattr(Odd, "calls", [])
    return Odd


ODD = "sources:\n  odd: {adapter: odd, token: s3cret-token}\n"


def test_errors_have_no_secrets_and_a_bug_is_named_one(tmp_path: Path, odd: type[Odd]) -> None:
    found = asked(tmp_path, ODD, hpa(*map(external, ("bug", "empty", "other"))))
    assert [each.problem for each in found.values()] == [
        "its adapter raised an exception, a bug of the adapter",
        "its adapter answered no PromQL, a bug of the adapter",
        "refused ***",
    ]


def test_a_source_that_is_away_does_not_take_minutes(
    tmp_path: Path, odd: type[Odd], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpad.cli.advise_queries._LONGEST", 0.2)
    monkeypatch.setattr(odd, "seconds", 0.15)
    found = asked(tmp_path, ODD, *(hpa(external("m"), name=f"web-{number}") for number in range(50)))
    assert len(odd.calls) in (1, 2)  # one on a machine that stands still for as long
    assert len(found) == 50
    assert len({each.problem for each in found.values()}) == 1
