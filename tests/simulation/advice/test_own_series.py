"""The past of Autoscalers by the series of hpad, beside HPAs of the same names; on a real Prometheus."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec
import pytest
from support import prometheus_lab
from support.past_hpas import external, past_hpa
from support.past_series import PastSeries

from hpad.api.hpa import AUTOSCALER, HorizontalPodAutoscaler
from hpad.lab.servers.prometheus import ABSENT, PrometheusServer
from hpad.simulation.advice import reading
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.reading import hpa_status
from hpad.simulation.history import REPLICAS
from hpad.simulation.prometheus import QueriedPrometheus

pytestmark = pytest.mark.skipif(not PrometheusServer.installed(), reason=ABSENT)
START = (int(time.time()) // 3600 - 24) * 3600
TIMES = range(START, START + 3600, 30)
BEGIN, END = START + 600, START + 3000
COUNT = (END - BEGIN) // 60 + 1
AUTHORITY = {"namespace": "shop", "hpa_name": "autoscaler/web"}


def autoscaler(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    return msgspec.structs.replace(hpa, kind=AUTOSCALER)


WEB = autoscaler(past_hpa("web", external("orders", "AverageValue", "10"), external("latency", "Value", "2")))


def pasts(server: PrometheusServer, *hpas: HorizontalPodAutoscaler) -> dict[str, HpaPast]:
    begin, end = (datetime.fromtimestamp(at, UTC) for at in (BEGIN, END))
    found = reading.read(QueriedPrometheus(server.url), hpas, begin, end, 60)
    return {str(past.hpa.key): past for past in found}


def of_hpad(past: PastSeries, name: str, value: float, until: int = START + 3600, **labels: str) -> None:
    points = [(each, value) for each in TIMES if each < until]
    past.add(f"hpad_hpa_{name}", {**AUTHORITY, **labels}, points)


def series(namespace: str = "namespace") -> PastSeries:
    """Returns the series of an Autoscaler with 4 replicas, 2 from the second half on, that loses the orders there."""
    past, half = PastSeries(), START + 1800
    owner = {namespace: "shop", "hpa_name": "autoscaler/web"}
    if namespace != "namespace":
        owner["namespace"] = "hpad-system"
    for name, value in (("min_replicas", 1), ("max_replicas", 8)):
        past.add(f"hpad_hpa_{name}", owner, [(each, value) for each in TIMES])
    counts = [(each, 4 if each < half else 2) for each in TIMES]
    past.add("hpad_hpa_current_replicas", owner, counts)
    past.add("hpad_hpa_decision", owner, [(each, count) for each, count in counts if each < half])
    past.add("hpad_hpa_metric_value", owner | {"metric": "orders"}, [(each, 7.5) for each, _ in counts if each < half])
    past.add("hpad_hpa_metric_value", owner | {"metric": "latency"}, [(each, 1.5) for each in TIMES])
    held = [(each, 1) for each in TIMES if each >= half]
    past.add("hpad_hpa_held_by", owner | {"reason": "invalid_metrics"}, held)
    past.add("hpad_hpa_held_by", owner | {"reason": "maximum"}, [(each, 1) for each in TIMES])
    return past


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    past = series()
    for name, value in (("status_current", 7), ("status_desired", 7), ("spec_min", 1), ("spec_max", 9)):
        past.hpa("shop", "web", f"{name}_replicas", [(each, value) for each in TIMES])
    yield from prometheus_lab.serve(past.text)


def halves(column: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Returns the value ten minutes before and after the second half begins."""
    return column[10], column[30]


def test_an_autoscaler_has_the_past_that_hpad_exports(server: PrometheusServer) -> None:
    past = pasts(server, WEB)["shop/autoscaler/web"]
    assert halves(past.load.columns[REPLICAS]) == (4, 2)
    assert halves(past.desired) == (4, None)
    assert (set(past.minimum), set(past.maximum)) == ({1}, {8})
    assert halves(past.load.columns["orders"]) == (30, None)
    assert halves(past.load.columns["latency"]) == (1.5, 1.5)
    assert {name: halves(column) for name, column in past.failing.items() if any(column)} == {"ScalingActive": (0, 1)}
    assert past.readings["orders"].source == "the series of hpad"
    assert len(past.load.times) == COUNT


def test_an_hpa_of_its_name_keeps_its_own(server: PrometheusServer) -> None:
    found = pasts(server, WEB, past_hpa("web"))
    assert set(found["shop/web"].load.columns[REPLICAS]) == {7}
    assert set(found["shop/web"].maximum) == {9}
    assert halves(found["shop/autoscaler/web"].load.columns[REPLICAS]) == (4, 2)


def test_a_label_that_prometheus_has_renamed() -> None:
    for other in prometheus_lab.serve(series("exported_namespace").text):
        past = pasts(other, WEB)["shop/autoscaler/web"]
        assert halves(past.load.columns[REPLICAS]) == (4, 2)
        assert halves(past.load.columns["orders"]) == (30, None)


def test_utilization_and_zero_replicas() -> None:
    past = PastSeries()
    for name, value in (("current_replicas", 0), ("decision", 0), ("min_replicas", 0), ("max_replicas", 8)):
        of_hpad(past, name, value)
    of_hpad(past, "metric_value", 0.42, metric="memory")
    of_hpad(past, "metric_value", 12, metric="orders")
    memory = {"type": "Resource", "resource": {"name": "memory", "target": {}}}
    memory["resource"]["target"] = {"type": "Utilization", "averageUtilization": 80}  # type: ignore[index]
    hpa = autoscaler(past_hpa("web", memory, external("orders", "AverageValue", "10")))
    for server in prometheus_lab.serve(past.text):
        found = pasts(server, hpa)["shop/autoscaler/web"]
        assert set(found.load.columns["memory"]) == {42}
        assert set(found.load.columns["orders"]) == {12}, "of no replica hpad exports the total"


def test_a_prometheus_that_does_not_scrape_hpad(server: PrometheusServer) -> None:
    other = autoscaler(past_hpa("other", external("orders", "AverageValue", "10")))
    past = pasts(server, other)["shop/autoscaler/other"]
    assert set(past.load.columns[REPLICAS]) == {None}
    assert past.readings["orders"].problem == "no value from the series of hpad"


def test_values_without_spare_replicas_are_divided_by_all_of_them() -> None:
    plain = past_hpa("web")
    annotations = {"hpad.io/spare": "2"}
    spared = msgspec.structs.replace(plain, metadata=msgspec.structs.replace(plain.metadata, annotations=annotations))
    replicas = [10.0, 4.0, None, 1.0, 0.0]
    assert hpa_status.counted(spared, replicas) == [8, 2, None, 1, 0]
    assert hpa_status.of_each(spared, [50.0, 50.0, 50.0, 50.0, 50.0], replicas) == [40, 25, None, 50, None]
    column: list[float | None] = [1.0, 2.0, 3.0, None, 5.0]
    assert hpa_status.of_each(plain, column, replicas) is column
