"""Addresses of metrics: what each form stands for, and the canonical address of each metric."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import engine
from support.engine import compiled

from hpad.engine import addresses
from hpad.engine.addresses import MetricIdentity, canonical, identities


def queue(name: str, *expressions: tuple[str, str, list[str]], **labels: str):
    """An External metric whose selector has these labels and expressions."""
    selector = {
        "matchLabels": labels,
        "matchExpressions": [{"key": key, "operator": op, "values": values} for key, op, values in expressions],
    }
    target = {"type": "AverageValue", "averageValue": "10"}
    return {"type": "External", "external": {"metric": {"name": name, "selector": selector}, "target": target}}


CPU = engine.resource("cpu", averageUtilization=50)
CPU_OF_APP = engine.container("cpu", "app", averageUtilization=50)
ORDERS, MAILS = queue("depth", queue="orders"), queue("depth", queue="mails")
PLAIN = engine.external("depth", averageValue="10")


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ((), ()),
        ((CPU,), ("cpu",)),
        ((CPU, PLAIN), ("cpu", "depth")),
        ((ORDERS,), ("depth",)),
        ((ORDERS, MAILS), ("depth{queue=orders}", "depth{queue=mails}")),
        ((PLAIN, ORDERS), ("depth{}", "depth{queue=orders}")),
        ((ORDERS, ORDERS), ("#0", "#1")),
        ((CPU_OF_APP,), ("cpu",)),
        ((CPU, CPU_OF_APP), ("#0", "cpu@app")),
        ((CPU_OF_APP, engine.container("cpu", "log", averageUtilization=50)), ("cpu@app", "cpu@log")),
        ((CPU, engine.external("cpu", averageValue="1")), ("#0", "cpu{}")),
        ((CPU_OF_APP, engine.external("cpu@app", averageValue="1")), ("cpu", "cpu@app{}")),
        ((engine.pods_metric("rate", "1"), engine.object_metric("rate", value="1")), ("#0", "#1")),
    ],
)
def test_the_canonical_address_is_the_shortest_that_is_unambiguous(metrics, expected):
    assert addresses.addresses(compiled(*metrics)) == expected


@pytest.mark.parametrize(
    "name", ["", " depth", "a,b", "a{b", "a}b", "#0", "#depth", "a\nb", "a\u202eb", "a" * 254, "\ud800"]
)
def test_a_name_that_an_address_cannot_express_is_addressed_by_its_index(name):
    assert addresses.addresses(compiled(CPU, engine.external(name, averageValue="1"))) == ("cpu", "#1")


@pytest.mark.parametrize("name", ["a=b", "a b", "http://x/y?z", "größe", "a" * 253])
def test_other_names_are_addresses(name):
    assert addresses.addresses(compiled(CPU, engine.external(name, averageValue="1"))) == ("cpu", name)


def test_a_metric_with_an_invalid_selector_has_no_address_with_a_selector():
    broken = queue("depth", ("queue", "Like", ["x"]))
    assert addresses.addresses(compiled(broken, PLAIN)) == ("#0", "depth{}")


def test_a_long_selector_gives_the_index():
    long = queue("depth", ("queue", "In", [f"{number:060}" for number in range(5)]))
    assert addresses.addresses(compiled(long, ORDERS)) == ("#0", "depth{queue=orders}")


def test_the_canonical_selector_is_in_the_order_of_its_texts_and_in_its_simplest_form():
    metric = queue(
        "q", ("b", "In", ["y", "x"]), ("a", "NotIn", ["z"]), ("c", "In", ["v", "v"]), ("d", "Exists", []), e="1"
    )
    expected = "q{a!=z,b in (x,y),c=v,d,e=1}"
    assert addresses.addresses(compiled(metric, ORDERS, queue("q")))[0] == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("q{a=x,b=y}", "q{b=y,a=x}"),
        ("q{a=x}", "q { a == x }"),
        ("q{a=x}", "q{a in (x)}"),
        ("q{a!=x}", "q{a notin (x)}"),
        ("q{a in (x,y)}", "q{a in (y, x, y)}"),
        ("q{a=x}", "q{a=x,a=x}"),
        ("q{}", "q{ }"),
        ("#7", "#07"),
    ],
)
def test_addresses_of_the_same_metrics_are_equal(one, other):
    assert addresses.parse(one) == addresses.parse(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("q{a=x}", "q{a=y}"), ("q{a in (x,y)}", "q{a in (x)}"), ("q{}", "q"), ("q{a}", "q{!a}"), ("#0", "#1")],
)
def test_addresses_of_different_metrics_differ(one, other):
    assert addresses.parse(one) != addresses.parse(other)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "'' is not an address of the form NAME, NAME{SELECTOR}, NAME@CONTAINER or #INDEX"),
        ("{a=b}", "'{a=b}' is not an address of the form"),
        ("q{a=b", "'q{a=b' is not an address of the form"),
        ("q{a=b}x", "'q{a=b}x' is not an address of the form"),
        ("q{a{b}}", "'q{a{b}}' is not an address of the form"),
        ("q}", "'q}' is not an address of the form"),
        ("q{a b}", "'a b' is not a label selector: unable to parse requirement: found 'b', expected: "),
        ("q{-=b}", "'-=b' is not a label selector: "),
        ("#", "'#' is not an index such as #0"),
        ("#x", "'#x' is not an index such as #0"),
        ("#-1", "'#-1' is not an index such as #0"),
        ("#١", "'#١' is not an index such as #0"),
        ("#0{a=b}", "'#0{a=b}' is not an index such as #0"),
        ("#1234567890", "'#1234567890' is not an index such as #0"),
        ("q" * 1025, "an address has at most 1024 characters, not 1025: use #INDEX"),
    ],
)
def test_a_malformed_address_is_refused(text, error):
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        addresses.parse(text)
    assert str(raised.value).startswith(error)


def described(text: str, found: Sequence[MetricIdentity]) -> list[int]:
    """The indexes of the metrics that an address stands for."""
    return [index for index, each in enumerate(addresses.forms(found)) if addresses.parse(text) in each]


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("cpu", [0, 1]),
        ("cpu@app", [1]),
        ("cpu@log", []),
        ("cpu{}", []),
        ("depth", [2, 3, 4]),
        ("depth{}", []),
        ("depth{queue=orders}", [2, 4]),
        ("#3", [3]),
        ("#5", []),
    ],
)
def test_an_address_stands_for_all_metrics_that_it_describes(text, indexes):
    assert described(text, identities(compiled(CPU, CPU_OF_APP, ORDERS, MAILS, ORDERS))) == indexes


def test_the_most_specific_form_comes_first():
    [of_app, orders] = addresses.forms(identities(compiled(CPU_OF_APP, ORDERS)))
    assert list(map(str, of_app)) == ["#0", "cpu@app", "cpu"]
    assert list(map(str, orders)) == ["#1", "depth{queue=orders}", "depth"]


NAMES = st.sampled_from(["cpu", "q", "q@a", "#1", "a=b", "a{b}", ""]) | st.text(max_size=4)
LABELS = st.sampled_from(["a", "b", "in", "notin", "example.com/a"])
VALUES = st.sampled_from(["", "x", "y", "in"])
EXPRESSIONS = st.one_of(
    st.tuples(LABELS, st.sampled_from(["In", "NotIn"]), st.lists(VALUES, min_size=1, max_size=3)),
    st.tuples(LABELS, st.sampled_from(["Exists", "DoesNotExist"]), st.just([])),
)


@st.composite
def metrics(draw):
    """A metric of any type; names, labels and containers are often equal."""
    name, kind = draw(NAMES), draw(st.sampled_from(["resource", "container", "object", "external"]))
    if kind == "resource":
        return engine.resource(name, averageUtilization=50)
    if kind == "container":
        return engine.container(name, draw(st.sampled_from(["a", "b"])), averageUtilization=50)
    labels = draw(st.dictionaries(LABELS, VALUES, max_size=2))
    if kind == "object":
        return engine.object_metric(name, draw(st.none() | st.just(labels)), value="1")
    return queue(name, *draw(st.lists(EXPRESSIONS, max_size=2)), **labels)


@given(st.lists(metrics(), max_size=6))
def test_the_canonical_address_of_each_metric_stands_for_this_metric_alone(chosen):
    found = identities(compiled(*chosen))
    texts = canonical(found)
    assert len(set(texts)) == len(chosen)
    assert [described(text, found) for text in texts] == [[index] for index in range(len(chosen))]
