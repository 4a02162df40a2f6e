"""Scales of any kind: from the watch where there is one, else through discovery and GET."""

import asyncio
import json

import pytest
from support.scripted_server import QUICK, failure, hangs, line, says, streams, until

from hpad.api.hpa import CrossVersionObjectReference
from hpad.api.sample import AdapterError
from hpad.kube import scale
from hpad.kube.cluster import Cluster
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


@pytest.fixture
async def cluster(script, client, clock, recorded, running):
    script.on("GET", DEPLOYMENTS, deployments(recorded("scale/deployment_get_as_v1_deployment")["body"]))
    for path in COLLECTIONS:
        if path != DEPLOYMENTS:
            script.on("GET", path, says({"metadata": {"resourceVersion": "1"}, "items": None}))
            script.on("GET", path + "?watch", hangs)
    cluster = Cluster(client, clock, reflector_options=QUICK)
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


async def test_a_watched_target_costs_no_request(script, cluster, running):
    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    await begin(cluster, running)
    await until(lambda: script.count(DEPLOYMENTS + "?watch"))
    asked = len(script.asked)
    for version in ("apps/v1", "apps/v1beta2"):
        held = await cluster.read_scale("fix", ref("Deployment", api_version=version))
        assert (held.spec.replicas, held.status.replicas, held.status.selector) == (2, 2, "app=rv")
    assert len(script.asked) == asked


async def test_a_written_scale_is_what_is_read_next(script, cluster, running, recorded):
    older = recorded("scale/deployment_get_as_v1_deployment")["body"]
    script.on("GET", DEPLOYMENTS + "?watch", streams(0.1, line("MODIFIED", older), then="hang"))
    await begin(cluster, running)
    held = await cluster.read_scale("fix", ref("Deployment"))
    answer = recorded("scale/deployment_put_200")["body"]
    answer["metadata"]["resourceVersion"] = "9000"
    script.on("PUT", SCALE, says(answer))
    written = await cluster.write_scale("fix", ref("Deployment"), held.with_replicas(3))
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


async def test_a_write_that_is_not_allowed_any_more_is_not_sent(script, cluster, running):
    class NotAllowedError(Exception):
        pass

    def allowed():
        raise NotAllowedError

    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    await begin(cluster, running)
    held = await cluster.read_scale("fix", ref("Deployment"))
    with pytest.raises(NotAllowedError):
        await cluster.write_scale("fix", ref("Deployment"), held.with_replicas(3), allowed)
    assert script.count(SCALE) == 0
    assert (await cluster.read_scale("fix", ref("Deployment"))).spec.replicas == held.spec.replicas


async def test_a_conflict_is_one_attempt_and_a_fresh_read_heals_it(script, cluster, running, recorded):
    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    await begin(cluster, running)
    script.on("PUT", SCALE, says(recorded("scale/deployment_put_conflict_409")["body"], 409))
    fresh = recorded("scale/deployment_get")["body"]
    fresh["metadata"]["resourceVersion"], fresh["spec"]["replicas"] = "8000", 7
    script.on("GET", SCALE, says(fresh))
    held = await cluster.read_scale("fix", ref("Deployment"))
    error = await refused(cluster.write_scale("fix", ref("Deployment"), held.with_replicas(3)))
    assert error.conflict
    assert script.count(SCALE) == 1
    assert (await cluster.fresh_scale("fix", ref("Deployment"))).spec.replicas == 7
    assert (await cluster.read_scale("fix", ref("Deployment"))).metadata["resourceVersion"] == "8000"


async def test_a_missing_target_has_the_words_of_the_server(script, cluster, running, recorded):
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
async def test_a_kind_without_a_scale_is_refused_by_the_server(script, cluster, recorded, kind, api_version):
    """It knows what to say: for a custom kind that the object is not found, even where it is there."""
    serve_discovery(script, recorded)
    answer = recorded(f"scale/{kind.lower()}_get_404")
    script.on("GET", answer["request"]["path"], says(answer["body"], 404))
    error = await refused(cluster.read_scale("fix", ref(kind, "x", api_version)))
    assert error.message == "the server could not find the requested resource"
    assert error.status == 404


async def test_all_groups_are_learnt_from_one_answer(script, cluster, recorded):
    """Aggregated discovery: one request for all custom kinds there are, however many HPAs refer to them at once."""
    real = recorded("discovery/aggregated_apis_stale_group")
    script.on("GET", "/apis", says(real["body"]))
    path = "/apis/oracle.example/v1/namespaces/fix/widgets/w/scale"
    script.on("GET", path, says(recorded("scale/cr_get")["body"]))
    widget = ref("Widget", "w", "oracle.example/v1")
    read = await asyncio.gather(*(cluster.read_scale("fix", widget) for _ in range(5)))
    assert {each.spec.replicas for each in read} == {recorded("scale/cr_get")["body"]["spec"]["replicas"]}
    assert script.count("/apis") == 1
    assert script.headers[0]["Accept"].startswith(real["request"]["headers"]["Accept"].partition(",")[0])
    error = await refused(cluster.read_scale("fix", ref("Nothing", "x", "oracle.example/v1")))
    assert error.reason == "NoMatch"
    assert script.count("/apis") == 1
    assert script.count("/apis/oracle.example") == 0


async def test_a_group_whose_server_is_away_says_so_itself(script, cluster, recorded):
    """In aggregated discovery it is stale, without any resources: that does not make its kinds unknown."""
    script.on("GET", "/apis", says(recorded("discovery/aggregated_apis_stale_group")["body"]))
    down = failure(503, "ServiceUnavailable", "service unavailable")
    script.on("GET", "/apis/custom.metrics.k8s.io", says(down, 503))
    error = await refused(cluster.read_scale("fix", ref("Pod", "p", "custom.metrics.k8s.io/v1beta2")))
    assert error.status == 503


async def test_a_kind_may_be_in_lower_case(script, cluster, running, recorded):
    """Kubernetes' REST mappers know it so, too; a built-in kind is watched all the same."""
    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    await begin(cluster, running, "deployment")
    await until(lambda: script.count(DEPLOYMENTS + "?watch"))
    asked = len(script.asked)
    assert (await cluster.read_scale("fix", ref("deployment"))).spec.replicas == 2
    assert len(script.asked) == asked
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
def test_a_selector_is_read_as_the_object_it_is_turned_into(recorded, written, read):
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
def test_a_selector_that_no_object_can_say_is_refused(recorded, written, why):
    """`metav1.ParseToLabelSelector`, by way of which the scale client of Kubernetes takes a scale."""
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
async def test_an_unknown_kind(script, cluster, recorded, kind, api_version, message):
    serve_discovery(script, recorded)
    assert (await refused(cluster.read_scale("fix", ref(kind, "x", api_version)))).message == message


async def test_a_reference_that_names_no_group_is_nothing_to_look_up(cluster):
    """Older API servers take one. Whoever only looks at what is known already must not stumble over it."""
    assert cluster.peek_scale("fix", ref("Deployment", "x", "a/b/c")) is None


async def test_a_kind_that_appears_is_found_ten_seconds_later_at_most(script, cluster, clock, recorded):
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


async def test_a_kind_is_watched_from_the_moment_an_hpa_refers_to_it(script, cluster, running, recorded):
    """Asked for with GET until the watch has synced, and never again."""
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


async def test_what_has_not_been_heard_of_for_too_long_is_not_decided_on(script, client, clock, running, cluster):
    """Stale pods end decisions; a stale target alone does not, it can be asked for."""
    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    wary = Cluster(client, clock, reflector_options=QUICK, max_staleness=60)
    await begin(wary, running)
    assert (await wary.read_scale("fix", ref("Deployment"))).metadata["name"] == "rv"
    clock.skipped += 61
    error = await refused(wary.read_scale("fix", ref("Deployment")))
    assert error.message == "nothing has been heard of pods for more than 1m0s: too long to decide"


async def test_an_hpa_of_a_namespace_that_is_not_watched_says_so(client, clock):
    """A file may name any namespace; no pods would pass for a target that has none."""
    narrow = Cluster(client, clock, reflector_options=QUICK, namespaces=("shop", "bank"), watch_hpas=False)
    error = await refused(narrow.read_scale("fix", ref("Deployment")))
    assert error.message == 'hpad does not watch the namespace "fix": its setting `namespaces` names shop, bank'


async def test_a_kind_that_may_not_be_listed_is_asked_for_one_by_one(script, cluster, running, recorded):
    forbidden = failure(403, "Forbidden", "replicasets.apps is forbidden")
    script.on("GET", DEPLOYMENTS + "?watch", hangs)
    script.replace("GET", "/apis/apps/v1/replicasets", says(forbidden, 403))
    await begin(cluster, running, "Deployment", "ReplicaSet")
    real = recorded("scale/replicaset_get")
    script.on("GET", real["request"]["path"], says(real["body"]))
    held = await cluster.read_scale("fix", ref("ReplicaSet", real["body"]["metadata"]["name"]))
    assert held.metadata == real["body"]["metadata"]
    assert cluster.troubles == ["replicasets.apps: replicasets.apps is forbidden"]
    assert "replicasets.apps" not in cluster.staleness()


async def test_a_failing_discovery_is_no_unknown_kind(script, cluster):
    script.on("GET", "/apis/oracle.example", says(failure(503, "ServiceUnavailable", "down"), 503))
    error = await refused(cluster.read_scale("fix", ref("Widget", "w", "oracle.example/v1")))
    assert (error.status, error.message) == (503, "down")


def test_a_selector_that_cannot_be_parsed_reads_as_in_kubernetes(recorded):
    body = recorded("scale/cr_get")["body"]
    body["status"]["selector"] = "app in (a"
    with pytest.raises(ApiError) as caught:
        scale.decode(json.dumps(body).encode())
    assert caught.value.message == recorded("events/core_v1_FailedGetScale_sel-invalid")["body"]["message"]


def test_a_scale_without_a_selector_is_a_scale(recorded):
    held = scale.decode(json.dumps(recorded("scale/cr_get_without_selector")["body"]).encode())
    assert (held.spec.replicas, held.status.selector) == (2, "")


@pytest.mark.parametrize("name", ["deployment_get", "replicaset_get", "statefulset_get", "replicationcontroller_get"])
def test_recorded_scales_are_read(recorded, name):
    body = recorded(f"scale/{name}")["body"]
    held = scale.decode(json.dumps(body).encode())
    assert held.metadata == body["metadata"]
    assert (held.spec.replicas, held.status.selector) == (body["spec"]["replicas"], body["status"]["selector"])


async def test_an_adapter_gets_the_words_of_the_server(script, cluster, recorded):
    real = recorded("metrics/external_404")
    script.on("GET", real["request"]["path"], says(real["body"], 404))
    with pytest.raises(AdapterError) as caught:
        await cluster.api.get(real["request"]["path"])
    assert (caught.value.message, caught.value.blame) == (real["body"]["message"], "spec")
