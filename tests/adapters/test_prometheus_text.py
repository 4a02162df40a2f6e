"""Templates, names of series, and which queries can share a request; without a server."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpad import testing
from hpad.adapter import AdapterError
from hpad.api import selector, settings_errors
from hpad_adapters.prometheus import batches, configuration, queries, rules, settings, template

VARIABLES = frozenset(
    {"PodMatchers", "Series", "LabelMatchers", "LabelValuesByName", "GroupBy", "GroupBySlice", "Text"}
)


def rendered(text: str, **values: template.Value) -> str:
    return template.compiled(text, VARIABLES).render(values)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from("\"'"))
def test_an_escaped_text_reads_back_as_itself(text: str, quote: str) -> None:
    """Go's and Python's string literals agree on the escapes that are used."""
    assert ast.literal_eval(f"{quote}{template.escaped(text, quote)}{quote}") == text


def test_between_backquotes_nothing_can_be_escaped() -> None:
    assert template.escaped("a\"'\\", "`") == "a\"'\\"
    with pytest.raises(AdapterError, match="backquotes"):
        template.escaped("a`b", "`")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('x{a="<<.Text>>"}', 'x{a="a.\\"b"}'),
        ("x{a='<<.Text>>'}", "x{a='a.\"b'}"),
        ('x{a=~"<<.Text>>"}', 'x{a=~"a\\\\.\\"b"}'),
        ('x{a !~ "(<<.Text>>)-.*"}', 'x{a !~ "(a\\\\.\\"b)-.*"}'),
        ('x{a="in \\"<<.Text>>"}', 'x{a="in \\"a.\\"b"}'),
        ('x{a="b"}', 'x{a="b"}'),
        ("# don't\nx{a=\"<<.Text>>\"} # won't", '# don\'t\nx{a="a.\\"b"} # won\'t'),
        ('x{a="#<<.Text>>"}', 'x{a="#a.\\"b"}'),
    ],
)
def test_values_are_escaped_for_the_place_where_they_stand(text: str, expected: str) -> None:
    assert rendered(text, Text='a."b') == expected


@pytest.mark.parametrize("value", ['x{a="b"}', "x or y", "x)", "", "1;2"])
def test_only_names_and_numbers_stand_outside_quotes(value: str) -> None:
    if not value:
        assert rendered("<<.Text>>", Text=value) == ""
        return
    with pytest.raises(AdapterError, match="cannot stand"):
        rendered("<<.Text>> > 1", Text=value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("<<.Nothing>>", "there is no variable .Nothing"),
        ("<<range .GroupBySlice>>", "is not of the form"),
        ("<<.Text", "not closed"),
        ('x{a="', "not closed"),
        ('x{a="<<.LabelMatchers>>"}', "inside quotes"),
    ],
)
def test_templates_beyond_the_subset_are_refused(text: str, error: str) -> None:
    with pytest.raises(template.TemplateError, match=error):
        template.compiled(text, VARIABLES)


def test_go_subset() -> None:
    values: dict[str, template.Value] = {
        "LabelValuesByName": {"pod": ("a.1", "b")},
        "GroupBySlice": ("pod", "container"),
    }
    assert rendered('<<index .GroupBySlice 1>>{p=~"<<index .LabelValuesByName "pod">>"}', **values) == (
        'container{p=~"a\\\\.1|b"}'
    )
    assert rendered("sum( <<- .Series ->> )", Series="x") == "sum(x)"
    assert rendered("<<.GroupBySlice>>", **values) == "[pod container]"
    assert rendered('x{p="<< .LabelValuesByName.pod >>",n="<<index .LabelValuesByName `n`>>"}', **values) == (
        'x{p="a.1|b",n=""}'
    )


def test_no_matchers_and_no_labels_leave_no_comma_behind() -> None:
    assert rendered("sum(x) by (<<.GroupBy>>, le)", GroupBy="") == "sum(x) by ( le)"
    assert rendered("sum(x) by (<<.GroupBy>>, le)", GroupBy="pod") == "sum(x) by (pod, le)"
    assert rendered("sum(x) by (a, <<.GroupBy>>, le)", GroupBy="") == "sum(x) by (a,  le)"
    assert rendered('x{a="b",<<.LabelMatchers>>,<<.PodMatchers>>,c="d"}', LabelMatchers="", PodMatchers="") == (
        'x{a="b",c="d"}'
    )
    assert rendered("x{<<.LabelMatchers>>,<<.PodMatchers>>}", LabelMatchers="", PodMatchers="") == "x{}"
    assert rendered('x{<<.LabelMatchers>>,job="a"}', LabelMatchers="") == 'x{job="a"}'
    assert rendered('x{<<.LabelMatchers>>,job="a"}', LabelMatchers='b="c"') == 'x{b="c",job="a"}'
    assert rendered("f(<<.LabelMatchers>>,1)", LabelMatchers="") == "f(,1)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("queue=a", 'queue="a"'),
        ("queue!=a", 'queue!="a"'),
        ("queue in (b,a.b)", 'queue=~"a\\\\.b|b"'),
        ("queue in (a)", 'queue="a"'),
        ("queue notin (a,b)", 'queue!~"a|b"'),
        ("queue", 'queue!=""'),
        ("!queue", 'queue=""'),
        ("app.kubernetes.io/name=web", 'app_kubernetes_io_name="web"'),
        ("9lives=x", '_9lives="x"'),
    ],
)
def test_selectors_as_matchers(text: str, expected: str) -> None:
    (term,) = selector.parse(text).requirements
    assert template.from_requirement(term) == expected


def test_an_order_of_values_has_no_matcher() -> None:
    (term,) = selector.parse("age>5").requirements
    with pytest.raises(AdapterError, match="no counterpart"):
        template.from_requirement(term)


def test_a_selector_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(AdapterError, match="matches nothing"):
        queries.selected(selector.NOTHING)


def named(query: str, matches: str, as_: str) -> configuration.Naming:
    rule = configuration.DiscoveryRule(query, name=configuration.Name(matches=matches, as_=as_))
    return configuration.naming(rule)


@pytest.mark.parametrize(
    ("query", "matches", "as_", "metric", "series"),
    [
        ("cheddar{sharp='true'}", "", "cheesy_goodness", "cheesy_goodness", "cheddar"),
        ("cheddar{sharp='true'}", "", "cheesy_goodness", "cheddar", None),
        ('{__name__="depth",a="b"}', "", "", "depth", "depth"),
        ("{a='b',__name__='depth'}", "", "", "depth", "depth"),
        ("http_requests_total", "^(.*)_total", "${1}_per_second", "http_requests_per_second", "http_requests_total"),
    ],
)
def test_a_rule_may_name_its_series(query: str, matches: str, as_: str, metric: str, series: str | None) -> None:
    made = named(query, matches, as_)
    assert made.possible(metric) == (series is not None)
    assert made.series == series or series is None


@pytest.mark.parametrize("query", ['{a="b"}', '{__name__=~"^queue_.*"}', '{__name__!="queue"}', '{__name__!~"q"}'])
def test_other_rules_name_none(query: str) -> None:
    assert named(query, "", "").series is None


def test_the_series_of_a_metric_is_found_among_those_of_the_server() -> None:
    made = named('{a="b"}', "^(.*)_(seconds|bytes)_total$", "${1}_$2")
    assert made.possible("cpu_seconds")
    assert made.among(["io_bytes_total", "cpu_seconds_total", "cpu_seconds"], "cpu_seconds") == "cpu_seconds_total"


def test_as_is_expanded_as_go_does_it() -> None:
    """`$1_x` refers to a group named "1_x", which does not exist."""
    assert named("", "^(?P<what>.*)_total$", "$1_per_second").metric("a_total") == ""
    assert named("", "^(?P<what>.*)_total$", "${what}$$$0").metric("a_total") == "a$a_total"


LM, GB = "<<.LabelMatchers>>", "<<.GroupBy>>"


@pytest.mark.parametrize(
    ("query", "shared"),
    [
        (f"sum(x{{{LM}}}) by ({GB})", True),
        (f"sum by ({GB}) (rate(x{{{LM}}}[2m]))", True),
        (f"sum(x{{{LM}}}) by (queue)", True),
        (f"sum(x{{{LM}}}) by (vhost, queue)", True),
        (f"x{{{LM}}}", True),
        (f"rate(x{{{LM},a='sum('}}[2m]) * 60 > bool 5", True),
        (f"sum(a{{{LM}}}) by ({GB}) / sum(b{{{LM}}}) by ({GB})", True),
        (f"histogram_quantile(0.9, sum(rate(x_bucket{{{LM}}}[2m])) by (le, {GB}))", True),
        (f"topk(1, x{{{LM}}}) by ({GB})", False),
        (f"topk(1, x{{{LM}}})", False),
        (f"sum(x{{{LM}}})", False),
        (f"sum(x{{{LM}}}) by (vhost)", False),
        (f"sum(x{{{LM}}}) without (pod)", False),
        (f"max(sum(x{{{LM}}}) by ({GB}))", False),
        (f"sum(x{{{LM}}}) by ({GB}) / scalar(sum(y) by ({GB}))", False),
        (f"sum(x{{{LM}}}) by ({GB}) / capacity", False),
        (f"sum(x{{{LM}}}) by ({GB}) or vector(0)", False),
        (f"absent(x{{{LM}}})", False),
        (f"SUM(x{{{LM}}})", False),
        (f"Sum By ({GB}) (x{{{LM}}})", True),
        (f"SUM(x{{{LM}}}) WITHOUT (pod)", False),
        (f"x{{{LM}}} OR Vector(0)", False),
        ("x{queue='<<.LabelValuesByName.queue>>'}", False),
        (f"x{{{LM},again='<<.LabelValuesByName.queue>>'}}", False),
        (f"x{{{LM},again=~'<<.LabelValuesByName.queue>>.*'}}", False),
        ("x{queue=~'<<.LabelValuesByName.queue>>'}", True),
        (f"sum(x{{{LM}}}) by ({GB}) * 1000 / sum(y) by ({GB})", False),
        (f"sum(x{{{LM}}}) by ({GB}) / sum(y{{{LM}}}) by (queue)", False),
        (f"sum(x{{{LM}}}) by ({GB}) / on ({GB}) sum(y{{{LM}}}) by ({GB})", False),
        (f"sum(x{{{LM}}}) by ({GB}) or sum(y{{{LM}}}) by ({GB})", True),
        (f"sum(x{{{LM} or queue='all'}}) by ({GB})", False),
        (f"sum(x{{{LM}}}) by (<<index .GroupBySlice 0>>)", False),
        (f"sum(rate({{{LM}}}[1m])) by ({GB})", False),
        (f"sum(x{{{LM}}}) by ({GB}) # {GB}", False),
        (f"clamp_max(x{{{LM}}}, scalar(y))", False),
        (f"x{{{LM}}} default 0", False),
        (f"x{{{LM}}} @ NaN", False),
        (f"{'-' * 140}x{{{LM}}}", True),
        (f"{'-' * 150}x{{{LM}}}", False),
        (f"# '\n{'-' * 150}x{{{LM}}} # '", False),
        (f"# it's\nx{{{LM}}}", True),
        ("(" * 20_000 + f"x{{{LM}}}" + ")" * 20_000, False),
    ],
)
def test_only_queries_that_keep_series_apart_are_shared(query: str, shared: bool) -> None:
    made = {"seriesQuery": "x", "metricsQuery": query, "resources": {"namespaced": False}}
    configured = settings.Settings(url="http://127.0.0.1:9", rules={"externalRules": [made]})
    compiled = rules.CompiledRules(configuration.read(configured), configured)
    asked = [testing.external("x", f"queue={queue}") for queue in ("a", "b")]
    (found,) = compiled.find(asked[0])
    entries = [rules.entry(found, "x", each, None) for each in asked]
    assert len(batches.planned(entries, 10)) == (1 if shared else 2)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("sum(x", "query: the brackets do not match: a ( is never closed"),
        (" ", "query: is empty: PromQL is needed"),
        ("sum(<<.Object>>)", "query: there is no variable .Object; there are HPA, HPALabels, LabelMatchers, Labels"),
        ("<<" * 2000, "query: a << is not closed"),
        ("x" * 5000, "is not text with max_length 4096"),
    ],
)
def test_wrong_promql_of_an_autoscaler_is_refused(query: str, error: str) -> None:
    (found,) = settings_errors.check({"query": query}, settings.OwnPromQL)
    assert error in found.text
