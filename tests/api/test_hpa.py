"""HPAs in JSON."""

from datetime import UTC, datetime

import msgspec
import pytest

from hpad.api import hpa as v2


def test_fields_that_go_always_writes_are_always_written() -> None:
    assert v2.to_builtins(v2.HorizontalPodAutoscaler()) == {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": "autoscaling/v2",
        "metadata": {},
        "spec": {"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0},
        "status": {"desiredReplicas": 0, "currentMetrics": None},
    }


def test_times_are_rfc_3339() -> None:
    condition = v2.HorizontalPodAutoscalerCondition("AbleToScale", "True", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert v2.to_builtins(condition)["lastTransitionTime"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(("written", "text"), [("0.5", "500m"), (1, "1"), (1.5, "1500m"), ("1024Mi", "1Gi")])
def test_quantities_are_read_from_texts_and_numbers_and_written_in_canonical_form(written: object, text: str) -> None:
    read = msgspec.convert({"type": "Value", "value": written}, v2.MetricTarget, dec_hook=v2.dec_hook)
    assert v2.to_builtins(read) == {"type": "Value", "value": text}


def test_the_error_for_a_wrong_type_has_the_path() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"spec\.maxReplicas"):
        v2.from_builtins({"spec": {"maxReplicas": "ten"}})


def test_the_hooks_raise_for_an_unknown_type() -> None:
    with pytest.raises(NotImplementedError):
        v2.dec_hook(complex, 1)
    with pytest.raises(NotImplementedError):
        v2.enc_hook(1j)
