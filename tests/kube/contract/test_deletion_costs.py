"""The requests that set and remove deletion costs, and which costs an API server accepts."""

import asyncio
from typing import Any

import pytest
from kube.contract.conftest import Api
from kube.contract.test_contract import PODS, WORKLOADS, pod, workload
from support.scripted_server import until

from hpad.api.metadata import Key
from hpad.api.pod import COST_SET, DELETION_COST, DeletionCost, Pod
from hpad.kube.cluster import Cluster
from hpad.kube.errors import ApiError

Json = dict[str, Any]
USERS: list[Json] = [{}, {DELETION_COST: "7"}, {"other": "x"}, {DELETION_COST: "-05", "other": "x"}]


def annotated(annotations: Json | None) -> Json:
    made: Json = pod("web")
    return {**made, "metadata": {**made["metadata"], "annotations": annotations}}


async def annotations_of(api: Api) -> Json:
    found: Json = (await api.ask("GET", f"{PODS}/web"))["metadata"].get("annotations") or {}
    return found


async def cached(api: Api, cluster: Cluster, cost: str | None) -> Pod:
    """Waits until the cache has the pod with this cost."""
    key, seen = Key(api.namespace, "web"), list[Pod]()

    def found() -> bool:
        pod = cluster.pods.get(key)
        if pod is None or (None if pod.deletion_cost is None else pod.deletion_cost.text) != cost:
            return False
        seen.append(pod)
        return True

    await until(found)
    return seen[0]


@pytest.mark.parametrize("users", USERS)
async def test_a_cost_is_set_and_removed(api: Api, cluster: Cluster, users: Json) -> None:
    await api.ask("POST", PODS, annotated(users or None))
    plain = await cached(api, cluster, users.get(DELETION_COST))
    await cluster.set_deletion_cost(plain, -3)
    marked = await cached(api, cluster, "-3")
    assert marked.is_marked
    assert cluster.pods.marked == {Key(api.namespace, "web")}
    assert (await annotations_of(api))[COST_SET].startswith("-3 20")
    await cluster.set_deletion_cost(marked, -4)
    marked = await cached(api, cluster, "-4")
    await cluster.remove_deletion_cost(marked)
    assert await annotations_of(api) == users
    await cached(api, cluster, users.get(DELETION_COST))
    assert not cluster.pods.marked


@pytest.mark.parametrize("edited", ["5", None])
async def test_a_cost_that_a_user_edits_is_left(api: Api, cluster: Cluster, edited: str | None) -> None:
    """Also one edited between the last watch event and the request."""
    await api.ask("POST", PODS, annotated({DELETION_COST: "7"}))
    await cluster.set_deletion_cost(await cached(api, cluster, "7"), -3)
    marked = await cached(api, cluster, "-3")
    await api.ask("PATCH", f"{PODS}/web", {"metadata": {"annotations": {DELETION_COST: edited}}})
    with pytest.raises(ApiError) as caught:
        await cluster.remove_deletion_cost(marked)
    assert (caught.value.status, caught.value.test_failed) == (422, True)
    seen = await cached(api, cluster, edited)
    assert seen.is_marked
    await cluster.remove_deletion_cost(seen)
    assert await annotations_of(api) == ({} if edited is None else {DELETION_COST: edited})


async def test_of_two_removals_one_counts_and_none_after_a_later_mark(api: Api, cluster: Cluster) -> None:
    await api.ask("POST", PODS, annotated(None))
    await cluster.set_deletion_cost(await cached(api, cluster, None), -3)
    marked = await cached(api, cluster, "-3")
    results = await asyncio.gather(*[cluster.remove_deletion_cost(marked) for _ in range(2)], return_exceptions=True)
    assert {type(each) for each in results} == {type(None), ApiError}
    assert await annotations_of(api) == {}
    body = {"metadata": {"annotations": {DELETION_COST: "-3", COST_SET: "-3 later"}}}
    await api.ask("PATCH", f"{PODS}/web", body)
    with pytest.raises(ApiError):
        await cluster.remove_deletion_cost(marked)
    assert await annotations_of(api) == body["metadata"]["annotations"]


@pytest.mark.parametrize("text", ["0", "-0", "-05", "-00", "2147483647", "-2147483648"])
async def test_valid_costs(api: Api, text: str) -> None:
    await api.ask("POST", PODS, annotated({DELETION_COST: text}))
    assert DeletionCost(text).restored == text


@pytest.mark.parametrize("text", ["2147483648", "-2147483649", "+3", "08", "", "-", "1.0", " 1", "low"])
async def test_an_api_server_refuses_a_cost_that_hpad_does_not_restore(api: Api, text: str) -> None:
    """Source: Kubernetes 1.36, pkg/apis/core/validation: ValidatePodSpecificAnnotations."""
    with pytest.raises(ApiError) as caught:
        await api.ask("POST", PODS, annotated({DELETION_COST: text}))
    assert caught.value.status == 422
    field = f"metadata.annotations[{DELETION_COST}]"
    assert caught.value.message == f'Pod "web" is invalid: {field}: Invalid value: "{text}": must be a 32bit integer'
    assert DeletionCost(text).restored is None


async def test_a_template_with_an_invalid_cost_is_refused(api: Api) -> None:
    made: Json = workload("Deployment")
    made["spec"]["template"]["metadata"]["annotations"] = {DELETION_COST: "low"}
    with pytest.raises(ApiError) as caught:
        await api.ask("POST", WORKLOADS["Deployment"], made)
    field = f"spec.template.annotations[{DELETION_COST}]"
    assert caught.value.message == (
        f'Deployment.apps "web" is invalid: {field}: Invalid value: "low": must be a 32bit integer'
    )


async def test_a_patch_to_an_invalid_cost_is_refused(api: Api) -> None:
    await api.ask("POST", PODS, annotated({DELETION_COST: "7"}))
    with pytest.raises(ApiError, match="must be a 32bit integer"):
        await api.ask("PATCH", f"{PODS}/web", {"metadata": {"annotations": {DELETION_COST: "low"}}})
    assert await annotations_of(api) == {DELETION_COST: "7"}
