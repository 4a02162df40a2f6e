"""Annotations of an HPA: the value of each metric, the errors, and the condition HpadAnnotationsValid."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import engine
from support.engine import compiled

from hpad.api.autoscaler import PREFIX
from hpad.api.hpa import AUTOSCALER, from_builtins
from hpad.api.problem import Problem
from hpad.api.sample import AdapterError
from hpad.engine import annotations, controls, fallback_policy
from hpad.engine.annotations import ACTIVATION, FAILURE_DURATION, FALLBACK, INVALID, UNKNOWN, Own
from hpad.engine.conditions import ANNOTATIONS_VALID, find
from hpad.engine.view import READ_FAILED, ScaleError

A, B = engine.external("a", averageValue="10"), engine.external("b", averageValue="10")
ORDERS = engine.external("q", {"queue": "orders"}, averageValue="10")
MAILS = engine.external("q", {"queue": "mails"}, averageValue="10")
CPU = engine.resource("cpu", averageUtilization=50)
CPU_OF_APP = engine.container("cpu", "app", averageUtilization=50)


def thresholds(text: str, *metrics: dict[str, Any]) -> list[int | None]:
    """The activation threshold of each metric, in whole units; [] where the text has an error."""
    found = annotations.read({ACTIVATION: text}, compiled(*metrics))
    return [None if each.activation is None else each.activation // 1000 for each in found.policies]


def error(text: str, *metrics: dict[str, Any]) -> str:
    """The error in a text for the activation; the text then has no effect."""
    found = annotations.read({ACTIVATION: text}, compiled(*metrics))
    assert found.policies == ()
    [only] = found.errors
    assert (only.path, only.reason) == (ACTIVATION, INVALID)
    return only.text


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (None, ()),
        ({"other": "x"}, ()),
        ({FAILURE_DURATION: "9"}, ()),
        ({FALLBACK: "hold"}, ("hold", "hold")),
        ({FALLBACK: "a=replicas:2"}, ("replicas:2", None)),
        ({FALLBACK: "a=replicas:2,ignore", FAILURE_DURATION: "9"}, ("replicas:2 after 9s", "ignore after 9s")),
        ({FALLBACK: "hold", FAILURE_DURATION: "a=9,b=8"}, ("hold after 9s", "hold after 8s")),
        ({FALLBACK: "hold after 5s", FAILURE_DURATION: "9"}, ("hold after 5s", "hold after 5s")),
        ({FALLBACK: "last-good:1m", FAILURE_DURATION: "9"}, ("last-good:1m0s", "last-good:1m0s")),
    ],
)
def test_fallbacks_are_read(present, expected):
    found = annotations.read(present, compiled(A, B))
    assert tuple(None if each.fallback is None else str(each.fallback) for each in found.policies) == expected
    assert (found.errors, found.error, found.reason) == ((), None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", [1, 1]),
        ("q=1", [1, 1]),
        ("q{queue=orders}=1", [1, None]),
        ("q{queue=orders}=1,q{queue=mails}=2", [1, 2]),
        (" q { queue == orders } = 1 , q{queue in (mails)}=2 ", [1, 2]),
        ("#1=2", [None, 2]),
        ("#0=1,#1=2", [1, 2]),
        # The more specific address wins, wherever it stands.
        ("q=1,2", [1, 1]),
        ("2,q=1", [1, 1]),
        ("q{queue=mails}=3,q=1,2", [1, 3]),
        ("q=1,q{queue=mails}=3", [1, 3]),
        ("#1=4,q{queue=mails}=3,q=1", [1, 4]),
        ("q{queue=mails}=3,#1=4,q=1", [1, 4]),
    ],
)
def test_the_most_specific_address_of_a_metric_wins(text, expected):
    assert thresholds(text, ORDERS, MAILS) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu=1", [1, 1, None]),
        ("cpu@app=1", [None, 1, None]),
        ("cpu@app=2,cpu=1,3", [1, 2, 3]),
        ("#0=1", [1, None, None]),
    ],
)
def test_a_container_has_an_address(text, expected):
    assert thresholds(text, CPU, CPU_OF_APP, A) == expected


def test_commas_and_equals_signs_in_braces_do_not_split():
    selector = {"matchExpressions": [{"key": "queue", "operator": "In", "values": ["x", "y"]}]}
    several = engine.external("q", averageValue="1")
    several["external"]["metric"]["selector"] = selector | {"matchLabels": {"vhost": "prod"}}
    assert thresholds("q{vhost=prod,queue in (y,x)}=5,1", A, several) == [1, 5]


def test_a_name_with_equals_signs_is_an_address():
    assert thresholds("x=y=3,1", engine.external("x=y", averageValue="1"), A) == [3, 1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("many", "'many' is not a number such as 5 or 500m"),
        ("q=many", "'many' is not a number such as 5 or 500m"),
        ("1,", "'': a value is missing, or there is a comma too many"),
        ("", "a value is missing, or there is a comma too many"),
        ("x=1", "there is no metric 'x' here; there are q{queue=orders}, q{queue=mails}"),
        (
            "q{queue=order}=1",
            "there is no metric 'q{queue=order}' here; there are q{queue=orders}, q{queue=mails}",
        ),
        ("q{}=1", "there is no metric 'q{}' here; there are q{queue=orders}, q{queue=mails}"),
        ("#2=1", "there is no metric '#2' here; there are q{queue=orders}, q{queue=mails}"),
        ("#x=1", "'#x' is not an index such as #0"),
        ("=1", "'' is not an address of the form NAME, NAME{SELECTOR}, NAME@CONTAINER or #INDEX"),
        (
            "q{queue=orders=1,2",
            "'q{queue=orders' is not an address of the form NAME, NAME{SELECTOR}, NAME@CONTAINER or #INDEX",
        ),
        ("q{queue=orders}", "there is no value: METRIC=VALUE is needed"),
        ("q{queue=orders}5", "there is no value: METRIC=VALUE is needed"),
        ("q{queue=orders}=", "'' is not a number such as 5 or 500m"),
        ("1,2", "'2': '1' is for the same metrics"),
        ("q=1,q=1", "'q=1': 'q=1' is for the same metrics"),
        (
            "q{queue=orders}=1,q{ queue in (orders) }=2",
            "'q{ queue in (orders) }=2': 'q{queue=orders}=1' is for the same metrics",
        ),
        ("#0=1,#00=2", "'#00=2': '#0=1' is for the same metrics"),
        # All errors are named.
        (
            "x=1,q=y",
            "'x=1': there is no metric 'x' here; there are q{queue=orders}, q{queue=mails}; "
            "'q=y': 'y' is not a number such as 5 or 500m",
        ),
    ],
)
def test_an_error_names_the_part_and_the_addresses_that_exist(text, expected):
    assert error(text, ORDERS, MAILS) == expected


def test_a_selector_that_cannot_be_parsed_is_named():
    text = error("q{queue in}=1", ORDERS)
    assert text.startswith("'queue in' is not a label selector: unable to parse requirement: ")


def test_an_hpa_without_metrics_has_no_addresses():
    assert error("a=1") == "there is no metric 'a' here; there are none"


WRONG = {
    "fallback": "five",
    "failure-duration-seconds": "soon",
    "activation": "some",
    "mode": "shadowed",
    "paused-until": "2026-11-30T08:00:00",  # without a zone
    "schedule": "0 8 * * * for 1h",
    "tolerance-up": "-1",
    "tolerance-down": "5%",
    "metric-policy": "max(a, c)",
    "ignore-containers": "Proxy!",
    "pod-selection": "owners",
    "scale-down-order": "idle",
    "keep-busy": "yes",
    "busy-metric": "jobs{",
    "sync-period": "0s",
    "initialization-period": "25h",
    "readiness-delay": "1",
    "zero-after": "10",
    "initial-delay": "169h",
    "spare": "10.5%",
    "pods": "role=(",
    "budget": "gpu!",
    "budget-priority": "high",
}


def test_each_invalid_annotation_is_named_by_the_condition_and_the_default_holds() -> None:
    assert {f"hpad.io/{name}" for name in WRONG} == {*annotations.ANNOTATIONS}
    for name, text in WRONG.items():
        web = engine.Workload(A, B, replicas=2, annotations={f"hpad.io/{name}": text})
        decision = web.reconcile(engine.series(40), engine.series(30))
        condition = web.condition(ANNOTATIONS_VALID)
        assert (condition.status, condition.reason) == ("False", INVALID), name
        assert f"hpad.io/{name}: " in condition.message
        assert decision.scale_to == 4, name
        assert web.view().controls == controls.NO_CONTROLS, name


def test_errors_in_options_of_an_autoscaler_name_the_options():
    metadata = {"name": "web", "annotations": {"hpad.io/mod": "shadow", FALLBACK: "never", "hpad.io/hpad.io/spare": ""}}
    plain = from_builtins({"metadata": metadata, "spec": {"metrics": [A]}})
    own = annotations.PLAIN.of(msgspec.structs.replace(plain, kind=AUTOSCALER))
    assert own.error is not None
    assert "spec.options.fallback: " in own.error
    assert 'spec.options.mod: there is no such option; did you mean "mode"?' in own.error
    assert 'spec.options.hpad.io/spare: there is no such option; did you mean "spare"?' in own.error
    assert 'annotation hpad.io/mod: there is no such annotation; did you mean "hpad.io/mode"?' in (
        annotations.PLAIN.of(plain).error or ""
    )


def test_an_invalid_annotation_leaves_the_others_in_force():
    found = annotations.read({FALLBACK: "c=hold", ACTIVATION: "a=5", FAILURE_DURATION: "soon"}, compiled(A, B))
    assert [(each.fallback, each.activation) for each in found.policies] == [(None, 5000), (None, None)]
    assert found.errors == (
        Problem(FALLBACK, "there is no metric 'c' here; there are a, b", reason=INVALID),
        Problem(FAILURE_DURATION, "'soon' is not a whole number of 0 or more", reason=INVALID),
    )
    assert found.error == (
        "annotation hpad.io/fallback: there is no metric 'c' here; there are a, b; "
        "annotation hpad.io/failure-duration-seconds: 'soon' is not a whole number of 0 or more"
    )
    assert found.reason == INVALID


def test_an_invalid_failure_duration_leaves_the_default():
    [policy] = annotations.read({FALLBACK: "replicas:5", FAILURE_DURATION: "soon"}, compiled(A)).policies
    assert policy.fallback is not None
    assert policy.fallback.after is None


def test_the_fallback_of_a_source_holds_for_an_invalid_annotation():
    metadata = {"name": "web", "annotations": {FALLBACK: "a=hold,b=never"}}
    hpa = from_builtins({"metadata": metadata, "spec": {"metrics": [A, B]}})
    of_source = fallback_policy.parse("replicas:3")
    found = annotations.AnnotationReader(lambda query: of_source if query.name == "a" else None).of(hpa)
    assert [policy.fallback for policy in found.policies] == [of_source, None]
    assert [error.path for error in found.errors] == [FALLBACK]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hpad.io/activate", 'there is no such annotation; did you mean "hpad.io/activation"?'),
        ("hpad.io/x", f"there is no such annotation; there are {', '.join(annotations.ANNOTATIONS)}"),
    ],
)
def test_an_unknown_annotation_is_an_error(name, text):
    found = annotations.read({name: "1", "other.io/activate": "x", FALLBACK: "hold"}, compiled(A))
    assert found.errors == (Problem(name, text, reason=UNKNOWN),)
    assert (found.error, found.reason) == (f"annotation {name}: {text}", UNKNOWN)
    assert len(found.policies) == 1


def test_an_invalid_annotation_gives_the_reason_beside_an_unknown_one():
    assert annotations.read({"hpad.io/x": "1", FALLBACK: "x"}, compiled(A)).reason == INVALID


def test_errors_are_bounded():
    many = annotations.read({ACTIVATION: ",".join(f"{'x' * 500}{number}=1" for number in range(15))}, compiled(A))
    assert many.errors[0].text.count("there is no metric") == 10
    assert len(many.error or "") <= 4096
    unknown = annotations.read({f"hpad.io/a{number}": "" for number in range(5000)}, compiled(A))
    assert len(unknown.errors) == 10
    assert unknown.errors[-1].text.endswith("; 4,990 more do not exist either")
    assert len(unknown.error or "") <= 4096


@pytest.mark.parametrize(("name", "longest"), annotations.ANNOTATIONS.items())
def test_a_longer_annotation_is_an_error_that_does_not_repeat_it(name, longest):
    """An author may write 250,000 characters, which would be parsed in the event loop."""
    found = annotations.read({"hpad.io/keep-busy": "true", name: "7" * (longest + 1)}, compiled(A))
    assert f"annotation {name}: it has {longest + 1:,} characters; at most {longest:,} are read" in found.error
    assert "777777" not in found.error
    assert name == "hpad.io/keep-busy" or found.controls.keep_busy is True


def test_at_most_ten_addresses_are_listed():
    metrics = [engine.external(f"m{number}", averageValue="1") for number in range(13)]
    names = ", ".join(f"m{number}" for number in range(10))
    assert error("x=1", *metrics) == f"there is no metric 'x' here; there are {names} and 3 more"


def test_control_characters_in_an_annotation_do_not_reach_the_error():
    found = annotations.read({"hpad.io/\x1b[31m": "", ACTIVATION: "\x1b[31m=1"}, compiled(A)).error
    assert found is not None
    assert found.isprintable()


@given(st.text("q#{}=,()@0 ai\x1b") | st.text())
def test_no_text_raises(text):
    found = annotations.read(dict.fromkeys(annotations.ANNOTATIONS, text), compiled(ORDERS, MAILS, CPU_OF_APP))
    assert isinstance(found, Own)
    assert (found.error is None) == (found.reason is None) == (found.errors == ())


@given(st.permutations(["#0=1", "q{queue=orders}=2", "q{queue=mails}=3", "q=4", "5"]))
def test_the_order_of_the_parts_does_not_matter(parts):
    assert thresholds(",".join(parts), ORDERS, MAILS, A) == [1, 3, 5]


class TestCondition:
    """The condition HpadAnnotationsValid: False while there are errors, else absent."""

    def workload(self, **present: str) -> engine.Workload:
        prefixed = {PREFIX + name: text for name, text in present.items()}
        return engine.Workload(A, replicas=3, annotations=prefixed)

    def condition(self, web: engine.Workload) -> tuple[str, str, str] | None:
        found = find(web.hpa.status.conditions, ANNOTATIONS_VALID)
        return None if found is None else (found.status, found.reason, found.message)

    @pytest.mark.parametrize("present", [{}, {"fallback": "hold"}])
    def test_it_is_absent_without_errors(self, present):
        web = self.workload(**present)
        web.reconcile(engine.series(30))
        assert self.condition(web) is None

    def test_it_names_the_errors_while_the_hpa_works(self):
        web = self.workload(fallback="hold,ignore", activate="1")
        assert web.reconcile(engine.series(60)).scale_to == 6
        text = (
            'annotation hpad.io/activate: there is no such annotation; did you mean "hpad.io/activation"?; '
            "annotation hpad.io/fallback: 'ignore': 'hold' is for the same metrics"
        )
        assert self.condition(web) == ("False", "InvalidAnnotation", text)
        assert ("InvalidAnnotation", text) in web.events

    def test_an_unknown_annotation_has_a_reason_of_its_own(self):
        web = self.workload(activate="1")
        web.reconcile(engine.series(30))
        found = self.condition(web)
        assert found is not None
        assert found[:2] == ("False", "UnknownAnnotation")

    def test_the_default_holds_for_an_invalid_annotation(self):
        web = self.workload(fallback="replicas:many after 0s")
        assert web.reconcile(AdapterError("down")).scale_to is None
        assert web.condition("ScalingActive").status == "False"
        assert self.condition(web) is not None

    def test_its_transition_time_is_that_of_its_appearance(self):
        web = self.workload(fallback="x")
        web.reconcile(engine.series(30))
        first = web.now
        web.annotations = {FALLBACK: "y"}
        web.reconcile(engine.series(30), after=15)
        condition = web.condition(ANNOTATIONS_VALID)
        assert "'y'" in condition.message
        assert condition.last_transition_time == first
        web.annotations = {}
        web.reconcile(engine.series(30), after=15)
        assert self.condition(web) is None
        web.annotations = {FALLBACK: "y"}
        web.reconcile(engine.series(30), after=15)
        assert web.condition(ANNOTATIONS_VALID).last_transition_time == first + timedelta(seconds=45)

    def test_the_same_errors_do_not_write_the_status_again(self):
        web = self.workload(fallback="x")
        for _ in range(3):
            web.reconcile(engine.series(30), after=15)
        assert web.settled is not None
        assert not web.settled.status_changed

    def test_it_appears_and_disappears_while_the_target_cannot_be_read(self):
        web = self.workload(fallback="x")
        unreadable = {"scale": None, "scale_error": ScaleError("gone", READ_FAILED)}
        web.reconcile(**unreadable)
        assert self.condition(web) is not None
        web.annotations = {}
        web.reconcile(after=15, **unreadable)
        assert self.condition(web) is None

    def test_it_appears_while_scaling_is_disabled(self):
        web = self.workload(fallback="x")
        web.replicas = 0
        web.reconcile()
        assert web.condition("ScalingActive").reason == "ScalingDisabled"
        assert self.condition(web) is not None
