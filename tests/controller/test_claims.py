"""Claims: who else lays hands on these pods."""

import asyncio

import hypothesis
from hypothesis import strategies
from support import virtual_time
from support.controller import Bench, hpa

from hpad.api import selector
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.controller.overlap import SelectorIndex

WEB, TWIN, OTHER = (Key("default", name) for name in ("web", "twin", "other"))


def pod(**labels: str) -> Pod:
    return Pod(name="p", namespace="default", labels=labels)


def test_an_hpa_that_claims_a_common_pod_is_a_rival() -> None:
    selectors = SelectorIndex()
    selectors.claim(WEB, selector.parse("app=web"))
    selectors.claim(TWIN, selector.parse("app=web,tier=front"))
    selectors.claim(OTHER, selector.parse("app=other"))
    assert selectors.rivals(WEB, [pod(app="web", tier="front")]) == ("twin",)
    assert selectors.rivals(WEB, [pod(app="web", tier="back")]) == ()
    assert selectors.rivals(OTHER, [pod(app="other")]) == ()


class Half:
    """The owner of those HPAs."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def owns(self, key: Key) -> bool:
        return key.name in self.names


def test_rivals_are_found_whoever_acts_on_them() -> None:
    """Two members, each with one of two HPAs on the same pods: neither scales."""

    async def main(name: str) -> Bench:
        bench = Bench(hpa("web"), hpa("twin"), owner=Half(name))
        bench.cluster.selectors["twin"] = "app=web"
        bench.metrics.values.update({"web": 40, "twin": 40})
        bench.cluster.scales["web"] = 2
        bench.controller.start()
        await asyncio.sleep(31)
        bench.cluster.writes.clear()
        await asyncio.sleep(60)
        await bench.controller.stop(5)
        return bench

    for name in ("web", "twin"):
        bench = virtual_time.run(main(name))
        assert bench.cluster.writes == []
        assert "AmbiguousSelector" in {event.reason for event in bench.cluster.events}
        assert {each for _, each in bench.metrics.asked} <= {name}


def test_another_namespace_is_another_world() -> None:
    selectors = SelectorIndex()
    selectors.claim(Key("elsewhere", "web"), selector.parse("app=web"))
    assert selectors.rivals(WEB, [pod(app="web")]) == ()


def test_a_new_claim_replaces_the_old_one_and_a_release_ends_it() -> None:
    selectors = SelectorIndex()
    selectors.claim(TWIN, selector.parse("app=web"))
    selectors.claim(TWIN, selector.parse("app=other"))
    assert selectors.rivals(WEB, [pod(app="web")]) == ()
    assert selectors.rivals(WEB, [pod(app="other")]) == ("twin",)
    selectors.release(TWIN)
    selectors.release(TWIN)
    assert selectors.rivals(WEB, [pod(app="other")]) == ()


TERMS = strategies.sampled_from(["a=1", "a==2", "b=1", "a", "!b", "a in (1,2)", "b notin (1)", "c=1"])
SELECTORS = strategies.lists(TERMS, min_size=1, max_size=3).map(",".join)
LABELS = strategies.dictionaries(strategies.sampled_from("abc"), strategies.sampled_from("123"))


@hypothesis.settings(deadline=None)
@hypothesis.given(
    claimed=strategies.dictionaries(strategies.sampled_from("vwxyz"), SELECTORS),
    pods=strategies.lists(LABELS, max_size=4),
)
def test_the_index_finds_what_a_scan_of_all_would(claimed: dict[str, str], pods: list[dict[str, str]]) -> None:
    selectors = SelectorIndex()
    for name, text in claimed.items():
        selectors.claim(Key("default", name), selector.parse(text))
    scanned = {
        name
        for name, text in claimed.items()
        if name != "v" and any(selector.parse(text).matches(labels) for labels in pods)
    }
    found = selectors.rivals(Key("default", "v"), [pod(**labels) for labels in pods])
    assert found == tuple(sorted(scanned))


def test_a_label_that_all_have_in_common_does_not_make_everybody_look_at_everybody() -> None:
    selectors, names = SelectorIndex(), [f"app-{n}" for n in range(300)]
    looked_at: list[str] = []

    class Labels(dict[str, str]):
        """Notes who is compared with it."""

        def get(self, label: str, default: str | None = None) -> str | None:
            looked_at.append(label)
            return super().get(label, default)

    for name in names:
        selectors.claim(Key("default", name), selector.parse(f"component=worker,name={name}"))
    labels = Labels(component="worker", name="app-7")
    pods = [Pod(name=f"p{n}", namespace="default", labels=labels) for n in range(50)]
    assert selectors.rivals(Key("default", "other"), pods) == ("app-7",)
    assert len(looked_at) < 10


def test_two_hpas_of_one_target_are_rivals_from_the_first_turn_on() -> None:
    """Else one of them would take a step after every start."""

    async def main() -> None:
        ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        bench = Bench(hpa("web"), hpa("twin", scaleTargetRef=ref))
        del bench.cluster.scales["twin"]
        bench.metrics.values.update(web=90, twin=50)
        await bench.advance(40)
        assert bench.cluster.writes == []
        assert {event.reason for event in bench.cluster.events} == {"AmbiguousSelector", "FailedComputeMetricsReplicas"}

    virtual_time.run(main())
