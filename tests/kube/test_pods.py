"""The index of pods: selection, shared labels, and removal."""

from hypothesis import given
from hypothesis import strategies as st

from hpad.api import selector
from hpad.api.metadata import Key
from hpad.api.pod import DeletionCost, Pod
from hpad.clock import SystemClock
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.client import Client
from hpad.kube.pods import Index, PodCache
from hpad.kube.reflector import ReflectorOptions, WatchScope
from hpad.kube.watch import DecodedObject

_LABELS = st.dictionaries(st.sampled_from(["app", "tier", "x"]), st.sampled_from(["a", "b", ""]), max_size=3)
_PODS = st.lists(
    st.builds(
        lambda name, namespace, labels: Pod(name=name, namespace=namespace, labels=labels),
        st.sampled_from([f"p{number}" for number in range(12)]),
        st.sampled_from(["n", "m"]),
        _LABELS,
    ),
    max_size=40,
)
_TERMS = ["app=a", "app==b", "app!=a", "tier in (a,b)", "tier notin (a)", "x", "!x", "app=", "x in (a)", "x in (,b)"]
_SELECTORS = st.lists(st.sampled_from(_TERMS), max_size=3).map(",".join)


def change(index: Index, old: Pod | None, new: Pod | None) -> None:
    """Replaces a pod, as a cache does."""
    if new is not None:
        index.pods[Key(new.namespace, new.name)] = new
    elif old is not None:
        del index.pods[Key(old.namespace, old.name)]
    index.replace(old, new)


@given(_PODS, _SELECTORS, st.data())
def test_the_index_finds_the_same_pods_as_a_scan(pods, text, data):
    index, pods_by_key = Index(), {}
    for pod in pods:
        key = Key(pod.namespace, pod.name)
        new = None if key in pods_by_key and data.draw(st.booleans()) else pod
        change(index, pods_by_key.pop(key, None), new)
        if new is not None:
            pods_by_key[key] = new
    assert dict(index.pods) == pods_by_key
    assert len(index.pods) == len(pods_by_key)
    selected = selector.parse(text)
    for namespace in ("n", "m", "none"):
        scan = [pod for key, pod in pods_by_key.items() if key.namespace == namespace and selected.matches(pod.labels)]
        assert index.select(namespace, selected) == sorted(scan, key=lambda pod: pod.name)


def test_special_selectors_select_no_pods_or_all_pods():
    index = Index()
    change(index, None, Pod(name="a", namespace="n"))
    assert index.select("n", selector.NOTHING) == []
    assert [pod.name for pod in index.select("n", selector.EVERYTHING)] == ["a"]


def test_an_index_without_pods_is_empty():
    index, pod = Index(), Pod(name="a", namespace="n", labels={"app": "web"})
    change(index, None, pod)
    assert len(index) == 2
    change(index, pod, None)
    assert len(index) == 0


def test_a_label_of_many_pods_is_found_while_their_number_grows_and_shrinks():
    index, web = Index(), selector.parse("app=web")
    pods = [Pod(name=f"{number:02}", namespace="n", labels={"app": "web"}) for number in range(20)]
    for count, pod in enumerate(pods, start=1):
        change(index, None, pod)
        assert index.select("n", web) == pods[:count]
    for count, pod in enumerate(pods, start=1):
        change(index, pod, None)
        assert index.select("n", web) == pods[count:]
    assert len(index) == 0


async def test_pods_whose_cost_hpad_has_set_are_marked_until_they_end() -> None:
    client = Client(ClusterConfig(server="http://127.0.0.1:9"), SystemClock())  # of which nothing is requested
    cache = PodCache(WatchScope(client, (), ReflectorOptions()))
    key = Key("n", "a")

    def put(cost: DeletionCost | None, *, deleted: bool = False) -> set[Key]:
        cache.put(DecodedObject(key, "1", Pod(name="a", namespace="n", deletion_cost=cost, deleted=deleted)))
        return set(cache.marked)

    assert put(DeletionCost("7")) == set()
    assert put(DeletionCost("-1", "-1 x", "7")) == {key}
    assert put(DeletionCost("7")) == set()
    assert put(DeletionCost("-1", "-1 x")) == {key}
    assert put(DeletionCost("-1", "-1 x"), deleted=True) == set()
    put(DeletionCost("-1", "-1 x"))
    cache.drop(key, "2")
    assert not cache.marked
    await client.aclose()


@given(_PODS)
def test_shared_labels_are_equal_to_those_of_the_pod(pods):
    index = Index()
    for pod in pods:
        assert index.sharing(pod) == pod
        change(index, None, pod)
