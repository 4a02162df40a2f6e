"""The index of selectors: which HPAs select common pods."""

import hypothesis
import pytest
from hypothesis import strategies
from support.controller import Bench, competing, hpa
from support.virtual_time import in_virtual_time

from hpad.api import selector
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.controller import overlap
from hpad.controller.overlap import SelectorIndex

WEB, TWIN, OTHER = (Key("default", name) for name in ("web", "twin", "other"))


def pod(**labels: str) -> Pod:
    return Pod(name="p", namespace="default", labels=labels)


def test_hpas_that_select_a_common_pod_compete() -> None:
    selectors = SelectorIndex()
    selectors.put(WEB, selector.parse("app=web"))
    selectors.put(TWIN, selector.parse("app=web,tier=front"))
    selectors.put(OTHER, selector.parse("app=other"))
    assert competing(selectors, WEB, [pod(app="web", tier="front")]) == ("twin",)
    assert competing(selectors, WEB, [pod(app="web", tier="back")]) == ()
    assert competing(selectors, OTHER, [pod(app="other")]) == ()


@in_virtual_time
async def test_hpas_on_the_same_pods_compete() -> None:
    """Neither scales."""
    bench = Bench(hpa("web"), hpa("twin"))
    bench.cluster.selectors["twin"] = "app=web"
    bench.metrics.values.update({"web": 40, "twin": 40})
    bench.cluster.scales["web"] = 2
    await bench.advance(90)
    assert bench.cluster.writes == []
    assert "AmbiguousSelector" in {event.reason for event in bench.cluster.events}


def test_hpas_of_different_namespaces_do_not_compete() -> None:
    selectors = SelectorIndex()
    selectors.put(Key("elsewhere", "web"), selector.parse("app=web"))
    assert competing(selectors, WEB, [pod(app="web")]) == ()


def test_a_new_selector_replaces_the_old_one_until_the_release() -> None:
    selectors = SelectorIndex()
    selectors.put(TWIN, selector.parse("app=web"))
    selectors.put(TWIN, selector.parse("app=other"))
    assert competing(selectors, WEB, [pod(app="web")]) == ()
    assert competing(selectors, WEB, [pod(app="other")]) == ("twin",)
    selectors.release(TWIN)
    selectors.release(TWIN)
    assert competing(selectors, WEB, [pod(app="other")]) == ()


TERMS = strategies.sampled_from(["a=1", "a==2", "b=1", "a", "!b", "a in (1,2)", "b notin (1)", "c=1"])
SELECTORS = strategies.lists(TERMS, min_size=1, max_size=3).map(",".join)
LABELS = strategies.dictionaries(strategies.sampled_from("abc"), strategies.sampled_from("123"))


@hypothesis.settings(deadline=None)
@hypothesis.given(
    claimed=strategies.dictionaries(strategies.sampled_from("vwxyz"), SELECTORS),
    pods=strategies.lists(LABELS, max_size=4),
)
def test_the_index_finds_the_same_hpas_as_a_full_scan(claimed: dict[str, str], pods: list[dict[str, str]]) -> None:
    selectors = SelectorIndex()
    for name, text in claimed.items():
        selectors.put(Key("default", name), selector.parse(text))
    scanned = {
        name
        for name, text in claimed.items()
        if name != "v" and any(selector.parse(text).matches(labels) for labels in pods)
    }
    found = competing(selectors, Key("default", "v"), [pod(**labels) for labels in pods])
    assert found == tuple(sorted(scanned))


def test_a_label_common_to_all_hpas_causes_few_comparisons() -> None:
    selectors, names = SelectorIndex(), [f"app-{n}" for n in range(300)]
    compared: list[str] = []

    class Labels(dict[str, str]):
        """Records each comparison with a selector."""

        def get(self, label: str, default: str | None = None) -> str | None:
            compared.append(label)
            return super().get(label, default)

    for name in names:
        selectors.put(Key("default", name), selector.parse(f"component=worker,name={name}"))
    labels = Labels(component="worker", name="app-7")
    pods = [Pod(name=f"p{n}", namespace="default", labels=labels) for n in range(50)]
    assert competing(selectors, Key("default", "other"), pods) == ("app-7",)
    assert len(compared) < 10


@in_virtual_time
async def test_two_hpas_of_one_target_compete_from_the_first_turn() -> None:
    """Otherwise one of them would scale once after every start."""
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    bench = Bench(hpa("web"), hpa("twin", scaleTargetRef=ref))
    del bench.cluster.scales["twin"]
    bench.metrics.values.update(web=90, twin=50)
    await bench.advance(40)
    assert bench.cluster.writes == []
    assert {event.reason for event in bench.cluster.events} == {"AmbiguousSelector", "FailedComputeMetricsReplicas"}


def hostile_pods(count: int) -> list[Pod]:
    return [Pod(name=f"p{n}", namespace="default", labels={"app": "web", f"own-{n}": "x"}) for n in range(count)]


def test_a_long_search_gives_way_after_each_thousand_comparisons() -> None:
    """300 selectors that no label finds, and 20 pods with labels of their own: it pauses after each four pods."""
    selectors = SelectorIndex()
    for number in range(300):
        selectors.put(Key("default", f"app-{number}"), selector.parse(f"!app,x{number}"))
    assert sum(1 for _ in selectors.search(WEB, hostile_pods(20))) == 5


def test_a_search_ends_once_many_are_found() -> None:
    selectors = SelectorIndex()
    for number in range(300):
        selectors.put(Key("default", f"app-{number}"), selector.parse(f"!x{number}"))
    assert len(competing(selectors, WEB, hostile_pods(1000))) == 300
    assert sum(1 for _ in selectors.search(WEB, hostile_pods(1000))) == 0


@in_virtual_time
async def test_an_hpa_with_too_many_pods_and_selectors_to_compare_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that HPA is not decided: the others of the namespace go on."""
    monkeypatch.setattr(overlap, "_MOST_COMPARED", 3000)
    bench = Bench(hpa("web"), hpa("good"))
    bench.metrics.values["good"] = 50
    for number in range(1000):
        bench.reconciler.overlap.selectors.put(Key("default", f"app-{number}"), selector.parse(f"!app,x{number}"))
    plain = bench.cluster.select
    bench.cluster.select = lambda namespace, chosen: (  # type: ignore[method-assign]
        hostile_pods(20) if str(chosen) == "app=web" else plain(namespace, chosen)
    )
    await bench.advance(20)
    (able,) = [each for each in bench.source.get(WEB).status.conditions if each.type == "AbleToScale"]  # type: ignore[union-attr]
    assert (able.status, able.reason) == ("False", "TooLarge")
    assert able.message.endswith("20 pods of different labels and the selectors of other HPAs are too much to compare")
    assert bench.cluster.scales["good"] > 1
