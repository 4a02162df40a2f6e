"""HPAs that an annotation of hpad pauses: that is said, and nothing that follows from it."""

import dataclasses

import msgspec
from support.advice_cast import CPU
from support.advice_pasts import painted, spec

from hpad.engine.view import Tunables
from hpad.simulation.advice.assess import assess
from hpad.simulation.advice.assessment import AdviceOptions, Assessment, HpaFault, Severity
from hpad.simulation.advice.past import HpaPast


def said(past: HpaPast) -> Assessment:
    return assess(past, AdviceOptions(Tunables()))


def severe(past: HpaPast) -> list[HpaFault]:
    return [each.fault for each in said(past).findings if each.severity is not Severity.NOTE]


def annotated(past: HpaPast, **annotations: str) -> HpaPast:
    own = {f"hpad.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
    metadata = msgspec.structs.replace(past.hpa.metadata, annotations=own)
    return dataclasses.replace(past, hpa=msgspec.structs.replace(past.hpa, metadata=metadata))


def test_a_pause_explains_that_nothing_scales() -> None:
    stands = painted(spec(CPU, high=10), [2.0] * 2880, {"cpu": 200.0})
    assert severe(stands) == [HpaFault.NOT_SCALING]
    assert severe(annotated(stands, mode="paused")) == [HpaFault.PAUSED]
    ended = annotated(stands, paused_until="2026-01-05T12:00:00Z")
    assert severe(ended) == [HpaFault.NOT_SCALING]
    still = annotated(stands, paused_until="2026-02-05T12:00:00Z")
    assert said(still).findings[0].text == (
        "paused until 2026-02-05 12:00Z by an annotation of hpad, so that nothing scales it"
    )


def test_an_hpa_that_stands_although_its_metrics_ask_for_more_does_not_do_its_job() -> None:
    stands = painted(spec(CPU, high=10), [2.0] * 2880, {"cpu": 200.0})
    (fault,) = said(stands).findings
    assert fault.severity is Severity.ERROR
    assert fault.brief == "did not grow for 47h59m although its metrics asked for up to 7"
    assert "with cpu at 200 %, goal 60 %, and 10 are allowed" in fault.text
    calm = painted(spec(CPU, high=10), [2.0] * 2880, {"cpu": 60.0})
    assert severe(calm) == []
    brief = painted(spec(CPU, high=10), [2.0] * 2880, {"cpu": [200.0] * 100 + [60.0] * 2780})
    assert severe(brief) == []


def test_a_pause_of_an_hpa_that_has_scaled_is_a_note() -> None:
    past = annotated(painted(spec(CPU), [2.0] * 1440 + [3.0] * 1440, {"cpu": 50.0}), mode="paused")
    found = said(past)
    assert [(each.fault, each.severity) for each in found.findings] == [(HpaFault.PAUSED, Severity.NOTE)]
    assert found.trust.text == "it is paused: its replica curve says nothing about its settings"
    assert found.advice is None
