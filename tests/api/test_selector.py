"""Label selectors: rules that the conformance vectors do not cover, and properties."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpad.api import selector
from hpad.api.selector import LabelSelector, LabelSelectorRequirement, Operator, Requirement, Selector

names = st.tuples(st.sampled_from("aZ0"), st.text("aZ0-_.", max_size=4), st.sampled_from("aZ0")).map("".join)
keys = names | names.map("example.com/{}".format) | st.sampled_from(["in", "notin"])
values = names | st.sampled_from(["", "in", "notin"])
integers = st.integers(0, 2**63 - 1).map(str)
single = st.sampled_from([Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.NOT_EQUALS])
requirements = st.one_of(
    st.builds(Requirement, keys, single, st.tuples(values)),
    st.builds(Requirement, keys, st.sampled_from([Operator.GREATER_THAN, Operator.LESS_THAN]), st.tuples(integers)),
    st.builds(
        Requirement,
        keys,
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.sets(values, min_size=1, max_size=4).map(lambda chosen: tuple(sorted(chosen))),
    ),
    st.builds(Requirement, keys, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
)
selectors = st.lists(requirements, max_size=5).map(
    lambda terms: Selector(tuple(sorted(terms, key=lambda term: term.key)))
)


@settings(deadline=None)
@given(selectors)
def test_the_canonical_text_parses_to_the_same_selector(written: Selector) -> None:
    again = selector.parse(str(written))
    assert again == written
    assert hash(again) == hash(written)


@settings(deadline=None)
@given(st.dictionaries(keys, values, max_size=4), st.dictionaries(keys, values, max_size=4))
def test_equalities_select_objects_with_all_of_the_labels(labels: dict[str, str], others: dict[str, str]) -> None:
    selected = selector.from_object(LabelSelector(match_labels=labels))
    assert selected.matches(others | labels)
    assert selected.matches(others) == (labels.items() <= others.items())


@settings(deadline=None)
@given(st.text(max_size=20))
def test_any_text_is_a_selector_or_a_selector_error(text: str) -> None:
    try:
        parsed = selector.parse(text)
    except selector.SelectorError:
        return
    assert selector.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (" \t\r\n", ""),
        ("app", "app"),
        ("! app", "!app"),
        ("in in (in)", "in in (in)"),
        ("notin=notin", "notin=notin"),
        ("app in ()", "app in ()"),
        ("app in (,)", "app in ()"),
        ("app in (a,,b)", "app in (,a,b)"),
        ("app in (b,a,b)", "app in (a,b)"),
        ("app in (,,a)", "app in (,a)"),
        ("z,a==1,m!=", "a==1,m!=,z"),
        ("a>1,a<3", "a>1,a<3"),
        ("app=web\0,tier=x", "app=web,tier=x"),
        ("app=web, \0tier=x", None),
        ("\0app", ""),
    ],
)
def test_canonical_text(text: str, canonical: str | None) -> None:
    if canonical is None:
        with pytest.raises(selector.SelectorError, match=r"^found '', expected: identifier after ','$"):
            selector.parse(text)
    else:
        assert str(selector.parse(text)) == canonical


QUALIFIED = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("app in web", "unable to parse requirement: found 'web' expected: '('"),
        ("app in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("app in (a,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("app in (a,(", "unable to parse requirement: found '(', expected: ',', or identifier"),
        ("app in (a b)", "unable to parse requirement: found 'b', expected: ',' or ')'"),
        ("app=(", "unable to parse requirement: found '(', expected: identifier"),
        ("!app=web", "found '=', expected: ',' or 'end of string'"),
        ("app web", "unable to parse requirement: found 'web', expected: in, notin, =, ==, !=, gt, lt"),
        ("app>", f'unable to parse requirement: values[0]: Invalid value: "": {INTEGER}'),
        (
            "app>9223372036854775808",
            f'unable to parse requirement: values[0]: Invalid value: "9223372036854775808": {INTEGER}',
        ),
        (
            "A.b/x",
            f'unable to parse requirement: <nil>: Invalid value: "A.b/x": prefix part {SUBDOMAIN}',
        ),
        (
            "/",
            'unable to parse requirement: <nil>: Invalid value: "/": prefix part must be non-empty; '
            f"name part must be non-empty; name part {QUALIFIED}",
        ),
        (
            'a"\\\x01b',
            f'unable to parse requirement: <nil>: Invalid value: "a\\"\\\\\\x01b": name part {QUALIFIED}',
        ),
    ],
)
def test_errors_of_texts(text: str, message: str) -> None:
    with pytest.raises(selector.SelectorError) as caught:
        selector.parse(text)
    assert str(caught.value) == message


def test_a_prefix_is_a_domain_of_at_most_253_bytes() -> None:
    assert selector.parse(f"{'a' * 253}/x").requirements[0].operator is Operator.EXISTS
    with pytest.raises(selector.SelectorError, match=r"prefix part must be no more than 253 bytes$"):
        selector.parse(f"{'a' * 254}/x")


def test_length_is_counted_in_bytes() -> None:
    with pytest.raises(selector.SelectorError, match="must be no more than 63 bytes; a valid label"):
        selector.parse(f"app={'é' * 32}")


def test_several_faults_are_listed_once_each() -> None:
    expression = LabelSelectorRequirement("-", "Exists", ("a", "<"))
    with pytest.raises(selector.SelectorError) as caught:
        selector.from_object(LabelSelector(match_expressions=(expression,)))
    assert str(caught.value).startswith('[key: Invalid value: "-": name part must consist')
    assert (
        ', values: Invalid value: ["a","\\u003c"]: values set must be empty for exists and does not exist, '
        'values[1][-]: Invalid value: "<": a valid label must be'
    ) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value", "matches"),
    [
        ("n>9", "10", True),
        ("n>9", "9", False),
        ("n>9", "+10", True),
        ("n>9", "ten", False),
        ("n>9", "1_0", False),
        ("n<9", "-10", True),
        ("n<9", "8", True),
        ("n<9", "9", False),
        ("n<9", "", False),
        ("n<9", "-9223372036854775809", False),
        ("n<9", None, False),
        ("n>9", None, False),
        ("n=", None, False),
        ("n=", "", True),
        ("n!=", None, True),
        ("n in ()", None, False),
        ("n notin (a,b)", None, True),
        ("n notin (a,b)", "b", False),
        ("n", "", True),
        ("!n", "", False),
        ("!n", None, True),
    ],
)
def test_matching_one_label(text: str, value: str | None, matches: bool) -> None:
    labels = {"other": "x"} if value is None else {"n": value}
    assert selector.parse(text).matches(labels) is matches


def test_all_requirements_must_match() -> None:
    parsed = selector.parse("app=web,tier!=batch,app=web")
    assert parsed.matches({"app": "web"})
    assert not parsed.matches({"app": "web", "tier": "batch"})
    assert not selector.parse("app=web,app=api").matches({"app": "web"})


def test_everything_and_nothing() -> None:
    assert selector.parse("") == selector.from_object(LabelSelector()) == selector.EVERYTHING
    assert selector.EVERYTHING.empty
    assert selector.EVERYTHING.matches({})
    assert selector.from_object(None) == selector.NOTHING != selector.EVERYTHING
    assert not selector.NOTHING.empty
    assert not selector.NOTHING.matches({})


def test_objects_are_read_and_written_in_the_form_of_the_api() -> None:
    text = b'{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"tier","operator":"Exists"}]}'
    decoded = msgspec.json.decode(text, type=LabelSelector)
    assert str(selector.from_object(decoded)) == "app=web,tier"
    assert msgspec.json.encode(decoded) == text
    assert msgspec.json.encode(LabelSelector()) == b"{}"


def test_a_parsed_text_is_cached() -> None:
    assert selector.parse("app=web,tier=x") is selector.parse("app=web,tier=x")


def test_a_selector_is_parsed_once_while_it_is_in_use():
    """A selector in use stays cached; of the unused ones only the latest do."""
    used = selector.parse("app=used")
    before = len(selector._KNOWN)
    for number in range(5_000):
        selector.parse(f"app=of-{number}")
    assert selector.parse("app=used") is used
    assert len(selector._KNOWN) - before <= 2_000


TERMS = st.sampled_from(
    ["a=1", "a!=1", "b", "!b", "a in (1,2)", "b notin (1)", "c>1", "c<3", "!c", "a notin (1,2,3,4,5,6,7,8,9,10)"]
)


@given(st.lists(TERMS, max_size=5), st.dictionaries(st.sampled_from("abcd"), st.sampled_from("123")))
def test_labels_match_where_they_meet_each_requirement(terms, labels):
    parsed = selector.parse(",".join(terms))
    assert parsed.matches(labels) == all(term.matches(labels) for term in parsed.requirements)


@pytest.mark.parametrize("text", [",".join(f"!k{n}" for n in range(101)), f"a in ({','.join(['v' * 60] * 70)})"])
def test_a_selector_of_more_than_any_user_has_is_refused(text):
    with pytest.raises(selector.SelectorError, match="at most 100 requirements and 4,096 characters") as refused:
        selector.parse(text)
    assert len(str(refused.value)) < 200


OF_ONE = st.sampled_from(
    ["q=a", "q=b", "q==a", "q in (a,b)", "q in (b,c)", "q notin (a)", "q notin (a,b)", "q!=b", "q", "!q"]
)


@given(st.lists(OF_ONE, max_size=5))
def test_a_selector_contradicts_itself_where_no_label_matches(terms):
    parsed = selector.parse(",".join(["vhost", *terms]))
    tried = [{"vhost": "x"}, *({"vhost": "x", "q": value} for value in ("a", "b", "c", "other"))]
    assert parsed.contradiction == ("" if any(map(parsed.matches, tried)) else "q")
