"""Tables and metadata-only answers for kubectl and informers."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from hpad.lab.cluster.columns import age

HPAS = "/apis/autoscaling/v2/namespaces/fix/horizontalpodautoscalers"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def test_a_table_of_hpas_has_the_recorded_columns_and_cells(start, recorded, recordings):
    client = await start(controllers=False, kubelet=False)
    real = recorded("scenario/hpa_list_table")["body"]
    expected = {row["cells"][0]: row["cells"][:-1] for row in real["rows"]}
    for path in (recordings / "scenario").glob("hpa_*.json"):
        body = json.loads(path.read_text("utf-8"))["body"]
        if path.stem == f"hpa_{body['metadata'].get('name')}":
            client.cluster.apply({**body, "status": {"conditions": [], **body["status"]}})
    status, table = await client.ask("GET", HPAS, Accept=TABLE)
    assert (status, table["kind"], table["columnDefinitions"]) == (200, "Table", real["columnDefinitions"])
    got = {row["cells"][0]: row["cells"][:-1] for row in table["rows"]}
    # the single HPAs were recorded at another time than the table, so some values differ
    same = [name for name in expected if got.get(name) == expected[name]]
    assert {"ext-bad", "no-such-kind", "allbad", "cr-nopods", "sel-invalid", "zero"} <= set(same)
    assert len(same) > len(expected) / 2
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    _, bare = await client.ask("GET", f"{HPAS}?includeObject=None&limit=2", Accept=TABLE)
    assert [row["object"] for row in bare["rows"]] == [None, None]


async def test_a_table_without_objects_is_as_recorded(start, recorded):
    client = await start(controllers=False, kubelet=False)
    real = recorded("table/hpa_list_includeObject_none")
    objects = {item["metadata"]["name"]: item for item in recorded("hpa/list_v2")["body"]["items"]}
    for name, *_ in [row["cells"] for row in real["body"]["rows"]]:
        shown = objects[name] if name in objects else recorded("hpa/get_v2_every_metric_type")["body"]
        head = {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2"}
        client.cluster.apply({**shown, **head, "metadata": {"name": name, "namespace": "fix"}})
    for name in ("later", "last"):
        client.cluster.apply({**shown, **head, "metadata": {"name": name, "namespace": "fix"}})
    status, table = await client.ask("GET", real["request"]["path"], Accept=TABLE)
    assert (status, table["columnDefinitions"]) == (200, real["body"]["columnDefinitions"])
    ours, theirs = ([row["cells"][:-1] for row in each["rows"]] for each in (table, real["body"]))
    assert ours == theirs
    assert [row["object"] for row in table["rows"]] == [None, None]
    assert table["metadata"].keys() == real["body"]["metadata"].keys()
    assert table["metadata"]["remainingItemCount"] == 2


async def test_a_table_with_whole_objects(start):
    client = await start(controllers=False, kubelet=False)
    path = "/api/v1/namespaces/kube-system"
    (row,) = (await client.ask("GET", f"{path}?includeObject=Object", Accept=TABLE))[1]["rows"]
    assert row["object"] == await client.get(path)
    (row,) = (await client.ask("GET", f"{path}?includeObject=Metadata", Accept=TABLE))[1]["rows"]
    assert row["object"].keys() == {"kind", "apiVersion", "metadata"}


async def test_a_table_of_workloads_and_their_pods(start, workload, until):
    client = await start(auto_ready=True)
    client.cluster.apply(workload("Deployment", "web", replicas=2))
    await until(lambda: client.cluster.get("deployments", "web")["status"].get("availableReplicas") == 2)

    async def cells(path):
        _, table = await client.ask("GET", path, Accept=TABLE)
        named = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
        return named, [row["cells"][1 : len(named) - 1] for row in table["rows"]]

    apps = "/apis/apps/v1/namespaces/default"
    assert await cells(f"{apps}/deployments") == (["Name", "Ready", "Up-to-date", "Available", "Age"], [["2/2", 2, 2]])
    assert await cells(f"{apps}/deployments/web") == await cells(f"{apps}/deployments")
    assert await cells(f"{apps}/replicasets") == (["Name", "Desired", "Current", "Ready", "Age"], [[2, 2, 2]])
    pods = ["Name", "Ready", "Status", "Restarts", "Age"]
    assert await cells("/api/v1/namespaces/default/pods") == (pods, [["1/1", "Running", "0"]] * 2)


async def test_a_watch_of_tables_sends_columns_once(start, recorded):
    client = await start(controllers=False, kubelet=False)
    for name in "ab":
        client.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    events = []
    path = "/api/v1/namespaces/default/configmaps?watch=true"
    async with client.session.get(client.cluster.url + path, headers={"Accept": TABLE}) as response:
        async for line in response.content:
            events.append(json.loads(line))
            if len(events) == 2:
                break
    real = recorded("watch/hpa_table_watch")["body"]
    assert [bool(event["object"]["columnDefinitions"]) for event in events] == [True, False]
    assert [bool(event["object"].get("columnDefinitions")) for event in real[:2]] == [True, False]
    assert events[0]["object"].keys() == real[0]["object"].keys()


async def test_metadata_only_lists_are_as_recorded(start, recorded):
    client = await start(controllers=False, kubelet=False)
    exchange = recorded("pods/list_partialobjectmetadata_empty")
    accept = exchange["request"]["headers"]["Accept"]
    _, body = await client.ask("GET", "/api/v1/namespaces/default/pods", Accept=accept)
    version = {"resourceVersion": body["metadata"]["resourceVersion"]}
    assert body == {**exchange["body"], "metadata": version}
    client.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}})
    _, body = await client.ask("GET", "/api/v1/configmaps", Accept=accept)
    assert [(item["kind"], "data" in item) for item in body["items"]] == [("PartialObjectMetadata", False)]


async def test_an_unknown_media_type_is_a_406_as_recorded(start, recorded):
    client = await start(controllers=False, kubelet=False)
    expected = recorded("errors/406_not_acceptable")
    assert await client.ask("GET", HPAS, Accept="text/csv") == (406, expected["body"])


async def test_unknown_fields_get_a_warning_or_an_error_as_recorded(start, recorded):
    client = await start(controllers=False, kubelet=False)
    client.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fix"}})
    strict, lenient = recorded("hpa/create_unknown_field_strict_400"), recorded("hpa/create_unknown_field_warn")
    body = strict["request"]["body"]
    assert await client.ask("POST", strict["request"]["path"], body) == (400, strict["body"])
    url = client.cluster.url + lenient["request"]["path"]
    async with client.session.post(url, json=lenient["request"]["body"]) as response:
        assert (response.status, response.headers["Warning"]) == (201, lenient["headers"]["warning"])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (312, "5m12s"),
        (601, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 1800, "3h30m"),
        (26 * 3600, "26h"),
        (50 * 3600, "2d2h"),
        (9 * 86400, "9d"),
    ],
)
def test_ages_are_formatted_as_by_kubectl(seconds, text):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    since = (now - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert age(since, now) == text
