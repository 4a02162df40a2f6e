"""The check of an adapter's answers."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from hpad import testing
from hpad.adapter import AdapterError, ExternalSample, ObjectSample, PodSample, PodValue
from hpad.sources.call import checked

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAIVE = datetime(2026, 1, 1)
MINUTE = timedelta(minutes=1)
DEPTH = testing.external("depth")
CPU = testing.resource("cpu", "app=web")
PACKETS = testing.pods_metric("pps", "app=web")
RATE = testing.object_metric("rps", "Ingress", "main")


def pods(value: object = 5, timestamp: object = NOW, window: object = MINUTE) -> PodSample:
    return PodSample({"a": PodValue(value, timestamp, window)}, NOW)


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        (DEPTH, ExternalSample((80000,), NOW)),
        (DEPTH, ExternalSample((0, -5), NOW)),
        (CPU, pods()),
        (CPU, PodSample({}, NOW)),
        (PACKETS, pods(-(2**63))),
        (RATE, ObjectSample(2**63 - 1, NOW)),
        (RATE, AdapterError("down")),
    ],
)
def test_a_valid_answer_is_passed_on(query, answer):
    assert checked("s", [query], [answer])[0] is answer


@pytest.mark.parametrize(
    ("query", "answer", "complaint"),
    [
        (DEPTH, None, 'answered nothing where the External metric "depth" needs a list of values'),
        (
            DEPTH,
            ObjectSample(1, NOW),
            'answered the value of an object where the External metric "depth" needs a list of values',
        ),
        (
            CPU,
            ExternalSample((1,), NOW),
            'answered a list of values where the Resource metric "cpu" needs values of pods',
        ),
        (DEPTH, ValueError("x"), "answered something else where"),
        (DEPTH, ExternalSample((), NOW), "no values at all"),
        (DEPTH, ExternalSample((math.nan,), NOW), "the value nan"),
        (DEPTH, ExternalSample((1, math.inf), NOW), "the value inf"),
        (DEPTH, ExternalSample((1.5,), NOW), "the value 1.5"),
        (DEPTH, ExternalSample((True,), NOW), "the value true, which is not a whole number"),
        (DEPTH, ExternalSample(80, NOW), "fields of other types than the contract of adapters has"),
        (DEPTH, ExternalSample((1,), NAIVE), "a timestamp that is not a time with a time zone"),
        (DEPTH, ExternalSample((1,), NOW, None), "fields of other types"),
        (DEPTH, ExternalSample((1,), None), "a timestamp that is not a time with a time zone"),
        (RATE, ObjectSample("7", NOW), "the value '7', which is not a whole number of thousandths"),
        (CPU, PodSample([1], NOW), "fields of other types"),
        (CPU, PodSample({"a": 5}, NOW), "fields of other types"),
        (CPU, pods(value=math.nan), "the value nan"),
        (CPU, pods(timestamp=NAIVE), "a timestamp that is not a time with a time zone"),
        (CPU, pods(window=60), "fields of other types"),
        (CPU, PodSample({}, NOW, -1), "fields of other types"),
        (CPU, PodSample({}, NOW, 1.5), "fields of other types"),
    ],
)
def test_an_answer_that_breaks_the_contract_is_a_bug_of_the_adapter(query, answer, complaint):
    [error] = checked("mine", [query], [answer])
    assert isinstance(error, AdapterError)
    assert error.blame == "bug"
    assert error.message.startswith('source "mine" answered ')
    assert complaint in error.message
    assert f'"{query.name}"' in error.message
    assert error.message.endswith(", a bug of its adapter")


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        (DEPTH, ExternalSample((1, 2**63), NOW)),
        (RATE, ObjectSample(-(2**63) - 1, NOW)),
        (CPU, pods(10**400)),
    ],
)
def test_a_value_beyond_64_bits_is_an_error_of_the_source(query, answer):
    [error] = checked("mine", [query], [answer])
    text = f'source "mine" answered a value that does not fit into 64 bits of thousandths for "{query.name}"'
    assert (error.message, error.blame) == (text, "source")


def test_an_invalid_answer_affects_its_own_query_only():
    good = ExternalSample((1,), NOW)
    assert checked("s", [DEPTH, DEPTH], [good, None])[0] is good


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ([], "gave 0 answers to 2 queries"),
        ([AdapterError("x")] * 3, "gave 3 answers to 2 queries"),
        (None, "answered nothing instead of a list"),
        ({DEPTH: 1}, "answered something else instead of a list"),
    ],
)
def test_a_batch_of_the_wrong_shape_is_an_error_for_each_query(returned, complaint):
    answers = checked("mine", [DEPTH, CPU], returned)
    assert [(a.blame, a.message) for a in answers] == [
        ("bug", f'source "mine" {complaint} when it was asked for "{name}", a bug of its adapter')
        for name in ("depth", "cpu")
    ]
