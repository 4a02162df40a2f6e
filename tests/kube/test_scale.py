"""Scales: from watched objects, or by discovery and GET; writes, conflicts and errors."""

import asyncio
import json

import pytest
from support.controller import hpa
from support.scripted_server import QUICK, failure, hangs, line, says, streams, until

from hpad.api.hpa import CrossVersionObjectReference
from hpad.api.sample import AdapterError
from hpad.kube import scale
from hpad.kube.cluster import Cluster, Watching
from hpad.kube.errors import ApiError

DEPLOYMENTS = "/apis/apps/v1/deployments"
SCALE = "/apis/apps/v1/namespaces/fix/deployments/rv/scale"
COLLECTIONS = (
    "/api/v1/pods", "/api/v1/replicationcontrollers", DEPLOYMENTS, "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets", "/apis/autoscaling/v2/horizontalpodautoscalers",
)  # fmt: skip


def ref(kind, name="rv", api_version="apps/v1"):
    return CrossVersionObjectReference(kind=kind, name=name, api_version=api_version)


def deployments(body):
    meta = {"resourceVersion": body["metadata"]["resourceVersion"]}
    return says({"metadata": meta, "items": [body]})


def set_by(body, manager):
    """The object, with a manager that has set its replicas."""
    entry = {"manager": manager, "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1"}
    owned = entry | {"time": "2026-01-01T12:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    return body | {"metadata": body["metadata"] | {"managedFields": [owned]}}


@pytest.fixture
async def cluster(script, client, clock, recorded, running):
    script.on("GET", DEPLOYMENTS, deployments(recorded("scale/deployment_get_as_v1_deployment")["body"]))
    for path in COLLECTIONS:
        if path != DEPLOYMENTS:
            script.on("GET", path, says({"metadata": {"resourceVersion": "1"}, "items": None}))
            script.on("GET", path + "?watch", hangs)
    cluster = Cluster(client, Watching(options=QUICK))
    return cluster


async def begin(cluster, running, *kinds):
    cluster.follow([ref(kind) for kind in kinds or ("Deployment",)])
    running(cluster.run())
    await asyncio.wait_for(cluster.ready(), 60)


def serve_discovery(script, recorded):
    for name in ("api_v1", "apis_apps", "apis_apps_v1", "apis_crd_group"):
        real = recorded(f"discovery/{name}")
        script.on("GET", real["request"]["path"], says(real["body"]))
    version = {"groupVersion": "oracle.example/v1", "version": "v1"}
    script.on("GET", "/apis/oracle.example", says({"versions": [version], "preferredVersion": version}))


async def refused(request):
    with pytest.raises(ApiError) as caught:
        await request
    return caught.value


async def test_the_scale_of_a_watched_target_is_read_without_a_request(script, cluster, running):
    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    await begin(cluster, running)
    await until(lambda: script.count(DEPLOYMENTS + "?watch"))
    requests = len(script.asked)
    for version in ("apps/v1", "apps/v1beta2"):
        current = await cluster.read_scale("fix", ref("Deployment", api_version=version))
        assert (current.spec.replicas, current.status.replicas, current.status.selector) == (2, 2, "app=rv")
    assert len(script.asked) == requests


async def test_a_written_scale_is_read_next_even_if_the_watch_is_behind(script, cluster, running, recorded):
    older = recorded("scale/deployment_get_as_v1_deployment")["body"]
    script.on("GET", DEPLOYMENTS + "?watch", streams(0.1, line("MODIFIED", older), then="hang"))
    await begin(cluster, running)
    current = await cluster.read_scale("fix", ref("Deployment"))
    answer = recorded("scale/deployment_put_200")["body"]
    answer["metadata"]["resourceVersion"] = "9000"
    script.on("PUT", SCALE, says(answer))
    written = await cluster.write_scale("fix", ref("Deployment"), current.with_replicas(3))
    assert written.spec.replicas == 3
    for _ in range(2):
        now = await cluster.read_scale("fix", ref("Deployment"))
        assert (now.spec.replicas, now.metadata["resourceVersion"]) == (3, "9000")
        await asyncio.sleep(0.15)
    real = recorded("scale/deployment_put_200")["request"]["body"]
    (sent,) = (json.loads(body) for body in script.bodies if body)
    assert sent["spec"] == {"replicas": 3}
    assert sent["metadata"]["resourceVersion"] == older["metadata"]["resourceVersion"]
    assert sent["status"] == real["status"]
    assert sent.keys() == real.keys()
    assert sent["metadata"].keys() == real["metadata"].keys()
    assert (sent["kind"], sent["apiVersion"]) == (real["kind"], real["apiVersion"])


async def test_a_list_that_is_older_than_a_write_does_not_undo_it(script, cluster, running, recorded):
    """The former author of the count is no other writer."""
    older = set_by(recorded("scale/deployment_get_as_v1_deployment")["body"], "kubectl")
    answer = recorded("scale/deployment_put_200")["body"]
    answer["metadata"]["resourceVersion"] = "9000"
    script.on("PUT", SCALE, says(answer))

    async def late(request):
        current = await cluster.read_scale("fix", ref("Deployment"))
        await cluster.write_scale("fix", ref("Deployment"), current.with_replicas(3))
        return await deployments(older)(request)

    script.replace("GET", DEPLOYMENTS, deployments(older), late)
    script.on("GET", DEPLOYMENTS + "?watch", says(failure(410, "Expired", "too old resource version"), 410), hangs)
    await begin(cluster, running)
    await until(lambda: script.count(DEPLOYMENTS + "?watch") == 2)
    assert cluster.competitors(hpa("rv", namespace="fix")) == ()
    assert (await cluster.read_scale("fix", ref("Deployment"))).spec.replicas == 3
    assert cluster.competitors(hpa("rv", namespace="fix")) == ()


async def test_a_write_that_is_no_longer_allowed_is_not_sent(script, cluster, running):
    class NotAllowedError(Exception):
        pass

    def allowed():
        raise NotAllowedError

    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    await begin(cluster, running)
    current = await cluster.read_scale("fix", ref("Deployment"))
    with pytest.raises(NotAllowedError):
        await cluster.write_scale("fix", ref("Deployment"), current.with_replicas(3), allowed)
    assert script.count(SCALE) == 0
    assert (await cluster.read_scale("fix", ref("Deployment"))).spec.replicas == current.spec.replicas


async def test_after_a_conflict_a_fresh_read_tells_what_a_silent_watch_does_not(script, cluster, running, recorded):
    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    await begin(cluster, running)
    fresh = recorded("scale/deployment_get")["body"]
    fresh["metadata"]["resourceVersion"], fresh["spec"]["replicas"] = "8000", 7
    script.on("GET", SCALE, says(fresh))
    assert (await cluster.fresh_scale("fix", ref("Deployment"))).spec.replicas == 7
    known = cluster.peek_scale("fix", ref("Deployment"))
    assert (known.spec.replicas, known.metadata["resourceVersion"]) == (7, "8000")


async def test_a_conflict_is_not_retried_and_the_watch_still_tells_who_has_set_the_replicas(
    script, cluster, running, recorded
):
    """A fresh read has the resourceVersion of the change, but not its author."""
    delivered = asyncio.Event()
    older = recorded("scale/deployment_get_as_v1_deployment")["body"]
    stopped = set_by(older, "kubectl") | {"spec": older["spec"] | {"replicas": 0}}
    stopped["metadata"]["resourceVersion"] = "8000"

    async def late(request):
        await delivered.wait()
        return await streams(line("MODIFIED", stopped), then="hang")(request)

    script.on("GET", DEPLOYMENTS + "?watch", late)
    await begin(cluster, running)
    script.on("PUT", SCALE, says(recorded("scale/deployment_put_conflict_409")["body"], 409))
    fresh = recorded("scale/deployment_get")["body"]
    fresh["metadata"]["resourceVersion"], fresh["spec"]["replicas"] = "8000", 0
    script.on("GET", SCALE, says(fresh))
    current = await cluster.read_scale("fix", ref("Deployment"))
    error = await refused(cluster.write_scale("fix", ref("Deployment"), current.with_replicas(3)))
    assert error.conflict
    assert script.count(SCALE) == 1
    assert (await cluster.fresh_scale("fix", ref("Deployment"))).spec.replicas == 0
    delivered.set()
    await until(lambda: cluster.replicas_set_by("fix", ref("Deployment")) == "kubectl")
    assert (await cluster.read_scale("fix", ref("Deployment"))).metadata["resourceVersion"] == "8000"


async def test_the_pod_template_of_a_target_is_listed_by_its_name(script, cluster):
    path = "/apis/apps/v1/namespaces/fix/deployments"
    container = {"name": "app", "resources": {"requests": {"cpu": "250m"}}}
    body = {"metadata": {}, "spec": {"template": {"metadata": {}, "spec": {"containers": [container]}}}}
    answers = [[body], [], [{"metadata": {}, "spec": {}}], [{"spec": {"template": 5}}]]
    script.on("GET", path, *[says({"items": items}) for items in answers])
    found = await cluster.pod_template("fix", ref("Deployment"))
    assert [each.requests for each in found.containers] == [{"cpu": 250}]
    for _ in range(2):
        assert await cluster.pod_template("fix", ref("Deployment")) is None
    assert "the template is no pod" in str(await refused(cluster.pod_template("fix", ref("Deployment"))))


async def test_the_error_of_a_missing_target_is_that_of_the_server(script, cluster, running, recorded):
    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    await begin(cluster, running)
    real = recorded("scale/deployment_get_404")
    script.on("GET", real["request"]["path"], says(real["body"], 404))
    error = await refused(cluster.read_scale("fix", ref("Deployment", "missing")))
    assert error.not_found
    assert error.message == 'deployments.apps "missing" not found'


async def test_custom_kinds_are_discovered(script, cluster, recorded):
    serve_discovery(script, recorded)
    for name in ("cr_get", "cr_get_2"):
        script.on("GET", recorded(f"scale/{name}")["request"]["path"], says(recorded(f"scale/{name}")["body"]))
    widget = await cluster.read_scale("fix", ref("Widget", "w", "oracle.example/v1"))
    assert (widget.spec.replicas, widget.status.selector) == (2, "app=web-w")
    before = len(script.asked)
    await cluster.read_scale("fix", ref("Gizmo", "z", "oracle.example/v1alpha1"))
    assert len(script.asked) == before + 1


@pytest.mark.parametrize(("kind", "api_version"), [("DaemonSet", "apps/v1"), ("ConfigMap", "v1")])
async def test_the_error_of_a_kind_without_a_scale_is_that_of_the_server(script, cluster, recorded, kind, api_version):
    """For a custom kind that error is that the object is not found, even if it exists."""
    serve_discovery(script, recorded)
    answer = recorded(f"scale/{kind.lower()}_get_404")
    script.on("GET", answer["request"]["path"], says(answer["body"], 404))
    error = await refused(cluster.read_scale("fix", ref(kind, "x", api_version)))
    assert error.message == "the server could not find the requested resource"
    assert error.status == 404


async def test_concurrent_reads_share_the_discovery_of_a_group(script, cluster, recorded):
    serve_discovery(script, recorded)
    path = "/apis/oracle.example/v1/namespaces/fix/widgets/w/scale"
    script.on("GET", path, says(recorded("scale/cr_get")["body"]))
    widget = ref("Widget", "w", "oracle.example/v1")
    read = await asyncio.gather(*(cluster.read_scale("fix", widget) for _ in range(5)))
    assert {each.spec.replicas for each in read} == {recorded("scale/cr_get")["body"]["spec"]["replicas"]}
    error = await refused(cluster.read_scale("fix", ref("Nothing", "x", "oracle.example/v1")))
    assert error.reason == "NoMatch"
    assert script.count("/apis/oracle.example") == 1


async def test_the_error_of_a_group_without_its_server_is_that_of_the_group(script, cluster, recorded):
    """Its kinds are not unknown for that."""
    down = failure(503, "ServiceUnavailable", "service unavailable")
    script.on("GET", "/apis/custom.metrics.k8s.io", says(down, 503))
    error = await refused(cluster.read_scale("fix", ref("Pod", "p", "custom.metrics.k8s.io/v1beta2")))
    assert error.status == 503


async def test_a_kind_may_be_in_lower_case(script, cluster, running, recorded):
    """As for the REST mappers of Kubernetes; a built-in kind is watched in this case as well."""
    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    await begin(cluster, running, "deployment")
    await until(lambda: script.count(DEPLOYMENTS + "?watch"))
    requests = len(script.asked)
    assert (await cluster.read_scale("fix", ref("deployment"))).spec.replicas == 2
    assert len(script.asked) == requests
    serve_discovery(script, recorded)
    script.on("GET", recorded("scale/cr_get")["request"]["path"], says(recorded("scale/cr_get")["body"]))
    assert (await cluster.read_scale("fix", ref("widget", "w", "oracle.example/v1"))).spec.replicas == 2
    error = await refused(cluster.read_scale("fix", ref("wIDGET", "w", "oracle.example/v1")))
    assert error.message == 'no matches for kind "wIDGET" in group "oracle.example"'


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("tier in (b,a), app == web ", "app=web,tier in (a,b)"),
        ("!gone,app,zone notin (x)", "app,!gone,zone notin (x)"),
        ("app=web,app=shop", "app=shop"),
        (" ", ""),
        ("", ""),
    ],
)
def test_a_selector_is_converted_to_a_label_selector_and_back(recorded, written, read):
    answer = recorded("scale/cr_get")["body"]
    answer["status"]["selector"] = written
    assert scale.decode(json.dumps(answer).encode()).status.selector == read


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("app=web,tier!=x", '"!=" is not a valid label selector operator'),
        ("size>3", '"gt" isn\'t supported in label selectors'),
        ("size<3", '"lt" isn\'t supported in label selectors'),
    ],
)
def test_a_selector_that_no_label_selector_can_express_is_refused(recorded, written, why):
    """The scale client of client-go does so. Source: apimachinery, meta/v1/helpers.go: ParseToLabelSelector."""
    answer = recorded("scale/cr_get")["body"]
    answer["status"]["selector"] = written
    with pytest.raises(ApiError) as caught:
        scale.decode(json.dumps(answer).encode())
    what = "received an object from a /scale endpoint which was not convertible to autoscaling Scale"
    assert caught.value.message == f"{what}: failed to parse target selector: {why}"


@pytest.mark.parametrize(
    ("kind", "api_version", "message"),
    [
        ("Thing", "nope.example/v1", 'no matches for kind "Thing" in group "nope.example"'),
        ("Thing", "apps/v1", 'no matches for kind "Thing" in group "apps"'),
        ("Deployment", "", 'no matches for kind "Deployment" in group ""'),
        ("A", "a/b/c", "invalid API version in scale target reference: unexpected GroupVersion string: a/b/c"),
    ],
)
async def test_the_error_of_an_unknown_kind_names_it(script, cluster, recorded, kind, api_version, message):
    serve_discovery(script, recorded)
    assert (await refused(cluster.read_scale("fix", ref(kind, "x", api_version)))).message == message


async def test_peek_returns_nothing_for_an_invalid_api_version(cluster):
    """Older API servers accept such a reference. Peeking must not raise for it."""
    assert cluster.peek_scale("fix", ref("Deployment", "x", "a/b/c")) is None


async def test_a_new_kind_is_found_after_ten_seconds_at_most(script, cluster, clock, recorded):
    version = {"groupVersion": "oracle.example/v1", "version": "v1"}
    crds = recorded("discovery/apis_crd_group")["body"]
    script.on("GET", "/apis/oracle.example", says({"versions": [version], "preferredVersion": version}))
    script.on("GET", "/apis/oracle.example/v1", says({"resources": []}), says(crds))
    script.on("GET", recorded("scale/cr_get")["request"]["path"], says(recorded("scale/cr_get")["body"]))
    widget = ref("Widget", "w", "oracle.example/v1")
    for _ in range(3):
        assert (await refused(cluster.read_scale("fix", widget))).reason == "NoMatch"
    assert script.count("/apis/oracle.example/v1") == 1
    clock.skipped += 10
    assert (await cluster.read_scale("fix", widget)).spec.replicas == 2


async def test_a_kind_is_watched_once_an_hpa_refers_to_it(script, cluster, running, recorded):
    """Its scales are read with GET until the watch has synced."""
    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    script.on("GET", SCALE, says(recorded("scale/deployment_get")["body"]))
    running(cluster.run())
    await asyncio.wait_for(cluster.ready(), 60)
    assert script.count(DEPLOYMENTS) == 0
    assert (await cluster.read_scale("fix", ref("Deployment"))).metadata["name"] == "rv"
    assert script.count(SCALE) == 1
    await until(lambda: cluster.targets["apps", "Deployment"].synced.is_set())
    for _ in range(3):
        await cluster.read_scale("fix", ref("Deployment"))
    assert script.count(SCALE) == 1
    assert script.count("/apis/apps/v1/replicasets") == 0


async def test_reads_fail_if_the_watch_of_pods_is_too_old(script, client, clock, running, cluster):
    """Outdated pods prevent decisions; an outdated target does not, because it can be read with GET."""
    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    limited = Cluster(client, Watching(options=QUICK, max_staleness=60))
    await begin(limited, running)
    assert (await limited.read_scale("fix", ref("Deployment"))).metadata["name"] == "rv"
    clock.skipped += 61
    error = await refused(limited.read_scale("fix", ref("Deployment")))
    assert error.message == "the watch of pods has received nothing for more than 1m0s: too long to decide"


async def test_reads_fail_for_a_namespace_that_is_not_watched(client, clock):
    """An HPA from a file may be in any namespace. Without a watch its target would seem to have no pods."""
    narrow = Cluster(client, Watching(options=QUICK, namespaces=("shop", "bank"), hpas=False))
    error = await refused(narrow.read_scale("fix", ref("Deployment")))
    assert error.message == 'hpad does not watch the namespace "fix": its setting `namespaces` names shop, bank'


async def test_targets_of_a_kind_that_hpad_may_not_list_are_read_one_by_one(script, cluster, running, recorded):
    forbidden = failure(403, "Forbidden", "replicasets.apps is forbidden")
    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    script.replace("GET", "/apis/apps/v1/replicasets", says(forbidden, 403))
    await begin(cluster, running, "Deployment", "ReplicaSet")
    real = recorded("scale/replicaset_get")
    script.on("GET", real["request"]["path"], says(real["body"]))
    current = await cluster.read_scale("fix", ref("ReplicaSet", real["body"]["metadata"]["name"]))
    assert current.metadata == real["body"]["metadata"]
    assert cluster.troubles == ["replicasets.apps: replicasets.apps is forbidden"]
    assert "replicasets.apps" not in cluster.staleness()


async def test_a_failed_discovery_is_not_reported_as_an_unknown_kind(script, cluster):
    script.on("GET", "/apis/oracle.example", says(failure(503, "ServiceUnavailable", "down"), 503))
    error = await refused(cluster.read_scale("fix", ref("Widget", "w", "oracle.example/v1")))
    assert (error.status, error.message) == (503, "down")


def test_the_error_of_an_invalid_selector_is_that_of_kubernetes(recorded):
    body = recorded("scale/cr_get")["body"]
    body["status"]["selector"] = "app in (a"
    with pytest.raises(ApiError) as caught:
        scale.decode(json.dumps(body).encode())
    assert caught.value.message == recorded("events/core_v1_FailedGetScale_sel-invalid")["body"]["message"]


def test_a_scale_without_a_selector_is_read(recorded):
    current = scale.decode(json.dumps(recorded("scale/cr_get_without_selector")["body"]).encode())
    assert (current.spec.replicas, current.status.selector) == (2, "")


@pytest.mark.parametrize("name", ["deployment_get", "replicaset_get", "statefulset_get", "replicationcontroller_get"])
def test_recorded_scales_are_read(recorded, name):
    body = recorded(f"scale/{name}")["body"]
    current = scale.decode(json.dumps(body).encode())
    assert current.metadata == body["metadata"]
    assert (current.spec.replicas, current.status.selector) == (body["spec"]["replicas"], body["status"]["selector"])


async def test_an_adapter_receives_the_message_of_the_server(script, cluster, recorded):
    real = recorded("metrics/external_404")
    script.on("GET", real["request"]["path"], says(real["body"], 404))
    with pytest.raises(AdapterError) as caught:
        await cluster.api.get(real["request"]["path"])
    assert (caught.value.message, caught.value.blame) == (real["body"]["message"], "spec")
