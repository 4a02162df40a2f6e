"""Parts of the cluster bench: histograms of scrapes, and the answers of the stub server."""

import asyncio
import json
import math
import time
from datetime import datetime
from typing import Any

import pytest

from tools.bench.cluster import population
from tools.bench.cluster.measure import Late, later
from tools.bench.cluster.metrics_server import Metrics
from tools.bench.cluster.population import Population
from tools.bench.cluster.scraped import Histogram, Scrape, quantile
from tools.bench.cluster.stub.api import Api
from tools.bench.cluster.stub.http import Answer, Request
from tools.bench.cluster.stub.http1 import Connection

POPULATION = Population(hpas=3, pods=2, metrics=1, per_namespace=2)
STATUS = "/apis/autoscaling/v2/namespaces/team-0/horizontalpodautoscalers/web-1/status"
SCALE = "/apis/apps/v1/namespaces/team-0/deployments/web-1/scale"


def asked(server: Api | Metrics, method: str, path: str, body: Any = None, head: bytes = b"") -> tuple[int, bytes]:
    """Returns status and body of an answer."""
    path, _, query = path.partition("?")
    content = b"" if body is None else json.dumps(body).encode()
    connection = Connection(server.handle)
    answer = server.handle(connection, Request(method, path, query, content, head))
    assert answer is not None
    return answer.status, answer.body


def test_a_status_is_stored_with_a_new_version_and_an_old_version_is_a_conflict() -> None:
    api = Api(POPULATION)
    _, body = asked(api, "GET", STATUS.removesuffix("/status"))
    read = json.loads(body)
    written = {**read, "status": {"currentReplicas": 2, "desiredReplicas": 2}}
    code, body = asked(api, "PUT", STATUS, written)
    stored = json.loads(body)
    assert code == 200
    assert stored["status"] == written["status"]
    assert stored["spec"] == population.hpa(POPULATION, 1)["spec"]
    assert int(stored["metadata"]["resourceVersion"]) > int(read["metadata"]["resourceVersion"])
    (written_at,) = (each["time"] for each in stored["metadata"]["managedFields"] if each["manager"] == "hpad")
    assert abs(datetime.fromisoformat(written_at).timestamp() - time.time()) < 3600
    assert asked(api, "PUT", STATUS, written)[0] == 409
    assert api.traffic.requests["update horizontalpodautoscalers/status"] == 2


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return False


async def test_a_change_right_after_the_request_for_a_watch_reaches_the_watch() -> None:
    api, transport = Api(POPULATION), Transport()
    connection = Connection(api.handle)
    connection.connection_made(transport)
    read = json.loads(asked(api, "GET", STATUS.removesuffix("/status"))[1])
    query = f"watch=true&timeoutSeconds=60&resourceVersion={read['metadata']['resourceVersion']}"
    path = "/apis/autoscaling/v2/horizontalpodautoscalers"
    assert api.handle(connection, Request("GET", path, query, b"", b"")) is None
    assert asked(api, "PUT", STATUS, {**read, "status": {"desiredReplicas": 2}})[0] == 200
    for _ in range(5):
        await asyncio.sleep(0)
    assert b'"type":"MODIFIED"' in transport.sent


def test_a_scale_changes_the_pods_and_their_metrics() -> None:
    api = Api(POPULATION)
    scale = json.loads(asked(api, "GET", SCALE)[1])
    assert scale["spec"]["replicas"] == 2
    code, _ = asked(api, "PUT", SCALE, {**scale, "spec": {"replicas": 3}})
    assert code == 200
    pods = json.loads(asked(api, "GET", "/api/v1/namespaces/team-0/pods")[1])["items"]
    metrics = json.loads(asked(api, "GET", "/apis/metrics.k8s.io/v1beta1/namespaces/team-0/pods")[1])["items"]
    names = ["web-0-0", "web-0-1", "web-1-0", "web-1-1", "web-1-2"]
    assert [pod["metadata"]["name"] for pod in pods] == names
    assert [item["metadata"]["name"] for item in metrics] == names
    assert len({pod["metadata"]["uid"] for pod in pods}) == len(names)


def test_usage_moves_from_list_to_list() -> None:
    api = Api(POPULATION)
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/team-1/pods"
    lists = [json.loads(asked(api, "GET", path)[1])["items"] for _ in range(160)]
    used = [items[0]["containers"][0]["usage"]["cpu"] for items in lists]
    assert len(set(used)) == len(used)
    assert all(900e6 < int(each.removesuffix("n")) < 1100e6 for each in used), "within the tolerance of 10 %"


def test_metrics_of_one_hpa_are_the_same_in_both_formats() -> None:
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/team-0/pods?labelSelector=app%3Dweb-1"
    items = json.loads(asked(Metrics(POPULATION), "GET", path)[1])["items"]
    code, encoded = asked(Metrics(POPULATION), "GET", path, head=b"Accept: application/vnd.kubernetes.protobuf")
    assert code == 200
    assert encoded.startswith(b"k8s\x00")
    for item in items:
        for text in (item["metadata"]["name"], *item["containers"][0]["usage"].values()):
            assert bytes([len(text)]) + text.encode() in encoded


def test_requests_that_arrive_in_pieces_or_together_are_answered_in_order() -> None:
    sent: list[bytes] = []
    connection = Connection(lambda _, request: Answer(request.path.encode() + request.body))

    class Transport:
        def write(self, data: bytes) -> None:
            sent.append(data)

    connection.connection_made(Transport())  # type: ignore[arg-type]
    raw = b"PUT /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyzGET /b?q=1 HTTP/1.1\r\nHost: h\r\n\r\n"
    for at in range(0, len(raw), 7):
        connection.data_received(raw[at : at + 7])
    connection.data_received(raw)
    answers = b"".join(sent).split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert [each.partition(b"\r\n\r\n")[2] for each in answers] == [b"/axyz", b"/b"] * 2


@pytest.mark.parametrize(("part", "expected"), [(0.5, 1.0), (0.75, 1.5), (1.0, math.inf)])
def test_a_quantile_is_interpolated_within_its_bucket(part: float, expected: float) -> None:
    histogram = Histogram([(1.0, 4.0), (2.0, 8.0 - 1.0 / 2), (math.inf, 8.0)])
    assert histogram.quantile(part) == pytest.approx(expected, rel=0.1)
    assert Histogram([]).quantile(part) is None


def test_a_histogram_of_two_scrapes_counts_what_came_between() -> None:
    series = 'a_bucket{{name="x",le="1.0"}} {0}\na_bucket{{name="x",le="+Inf"}} {1}\na_bucket{{name="y",le="1.0"}} 9\n'
    before, after = (Scrape.of(series.format(*counts), ("a_",)) for counts in ((1, 2), (4, 7)))
    assert after.histogram(before, "a", name="x").buckets == [(1.0, 3.0), (math.inf, 5.0)]


def test_reconciles_that_are_too_late_for_their_traces_count_as_late() -> None:
    traced, started = Late(0.1, 0.2, 0.3), Late(0.5, 4.0, math.inf)
    assert later(traced, started, 3.0) == Late(0.1, 4.0, math.inf)
    assert later(Late(), Late(0.5, 4.0, None), 3.0) == Late(None, 4.0, None)


def test_a_quantile_of_values_is_one_of_them() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert quantile([], 0.5) is None
