"""What is larger than hpad takes: the target keeps its count, and condition, event and outlook say why."""

import msgspec
import pytest
from support.engine import Workload, external, pod, series

from hpad.engine import examine

QUEUE = external("queue", averageValue="10")


def test_an_hpa_that_was_refused_is_not_decided() -> None:
    web = Workload(QUEUE, replicas=20, high=10)
    web.hpa = msgspec.structs.replace(
        web.hpa, spec=msgspec.structs.replace(web.hpa.spec, metrics=(), refused="its size")
    )
    decision = web.reconcile()
    assert (decision.scale_to, str(decision)) == (None, "cannot decide: its size")
    condition = web.condition("AbleToScale")
    assert (condition.status, condition.reason) == ("False", "TooLarge")
    assert condition.message == "the HPA controller does not decide for what is too large: its size"
    assert web.settled is not None
    assert [(event.reason, event.message) for event in web.settled.events] == [("TooLarge", "its size")]
    assert web.settled.error_label == "spec"
    assert [each.text for each in web.outlook] == ["decides once it is within the limits of hpad: " + condition.message]


@pytest.mark.parametrize(("pods", "decides"), [(25, True), (26, False)])
def test_the_number_of_pods_times_metrics_is_limited(pods: int, decides: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "MOST_VALUES", 50)
    web = Workload(QUEUE, external("mails", averageValue="10"), replicas=3)
    web.pods = [pod(f"web-{number}") for number in range(pods)]
    decision = web.reconcile(*[series(50)] * (2 if decides else 0))
    assert (decision.scale_to is not None) is decides
    if not decides:
        condition = web.condition("ScalingActive")
        assert condition.reason == "TooLarge"
        assert condition.message == "26 pods and 2 metrics are more than 50 values, which hpad takes for one HPA"
