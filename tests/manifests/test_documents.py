"""Documents of YAML and JSON files, their lines and their errors."""

import json
import re
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from hpad.api import yaml_reader
from hpad.manifests import documents, hpas


def parse(text: str, suffix: str = ".yaml") -> list[documents.Document]:
    return documents.parse(text.encode(), "file", suffix)


def test_several_documents_with_their_lines() -> None:
    found = parse("# first\na: 1\n---\n---\n\nb:\n  c: [x, z]\n")
    assert [(each.index, each.line, each.value) for each in found] == [
        (0, 2, {"a": 1}),
        (1, 6, {"b": {"c": ["x", "z"]}}),
    ]
    assert [found[1].line_of(path) for path in ("b", "b.c", "b.c[1]", "b.none", "none")] == [6, 7, 7, 6, 6]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", False),
        ("on", True),
        ("yes", True),
        ("y", "y"),
        ("N", "N"),
        ("nO", "nO"),
        ("true", True),
        ("1:30", "1:30"),
        ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("1_000", 1000),
        ("_1", "_1"),
        ("010", 8),
        ("0O10", 8),
        ("-0b11", -3),
        ("0_8", 8),
        ("1e3", 1000),
        ("10.0", 10),
        ("0.5", 0.5),
        ("1_0.5", 10.5),
        ("10", 10),
        ("-3", -3),
        ("0x1F", 31),
        ("0X1f", 31),
        ("~", None),
        ("null", None),
        ("", None),
        ("200m", "200m"),
        ("=", "="),
    ],
)
def test_scalars_are_those_of_kubectl(text: str, value: object) -> None:
    """As `kubectl label --local -o json` of version 1.32 shows them, but for y and n."""
    [found] = parse(f"a: {text}\nb: 1\n")
    assert repr(found.value) == repr({"a": value, "b": 1})


@pytest.mark.parametrize("text", ["y", "N", "no", "On", "010", "0b1", "1_000", "1e3", "1:30", "2026-01-02", "~", ""])
def test_a_text_that_would_be_something_else_is_written_in_quotes(text: str) -> None:
    assert yaml.dump([text, "yy"], Dumper=yaml_reader.Dumper) == f"- '{text}'\n- yy\n"


@pytest.mark.parametrize("merged", ["<<: *x, l: 2", "l: 2, <<: *x"])
def test_a_field_beside_a_merge_overrides_the_merged_one(merged: str) -> None:
    [found] = parse(f"a: &x {{k: 1, l: 3}}\nb: {{{merged}}}\n")
    assert found.value["b"] == {"k": 1, "l": 2}
    assert not found.faults


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [b\n", 2),
        ("a: 1\nb: {\n", 3),
        ("a: 1\n\tb: 2\n", 2),
        ("a: b: c\n", 1),
        ("? [a]\n: b\n", 1),
        ("a: !!python/none\n", 1),
    ],
)
def test_the_error_for_invalid_yaml_has_the_place(text: str, line: int) -> None:
    found = parse(text)
    assert found[-1].value is None
    [fault] = found[-1].faults
    assert fault.text.startswith("not valid YAML: ")
    assert (found[-1].line, f"line {line}, column " in fault.text) == (line, True), fault.text


@pytest.mark.parametrize("text", ["{{- if .Values.on }}\na: 1\n{{- end }}\n", "a: {{ .Values.a }}\n"])
def test_a_template_of_helm_is_named_as_one(text: str) -> None:
    [found] = parse(text)
    assert found.faults[0].text.startswith("not valid YAML: it is a template: name a file with what it renders to")


def test_documents_before_a_broken_one_are_read() -> None:
    found = parse("a: 1\n---\nb: [\n")
    assert [each.parsed for each in found] == [True, False]


def test_a_repeated_field_is_an_error() -> None:
    [found] = parse("a: 1\nb:\n- c: 1\n  c: 2\n")
    assert found.value == {"a": 1, "b": [{"c": 2}]}
    assert [fault.path for fault in found.faults] == ["b[0].c"]
    [found] = parse('{"a": 1, "a": 2}', ".json")
    assert [fault.path for fault in found.faults] == ["a"]


def test_a_field_repeated_many_times_is_one_error() -> None:
    """This happens when files are joined without `---` between them."""
    [found] = parse("a: 1\nb: {c: 1}\n" * 4)
    assert [fault.path for fault in found.faults] == ["a", "b"]


def test_aliases_are_read_unless_they_multiply_the_text_or_contain_themselves() -> None:
    [found] = parse("a: &a {b: 1}\nc: [*a, *a]\nd:\n  <<: *a\n  e: 2\n")
    assert found.value == {"a": {"b": 1}, "c": [{"b": 1}, {"b": 1}], "d": {"b": 1, "e": 2}}
    for begin, more in (("[x, x]", "[*{0}, *{0}]"), ("{x: 1}", "{{<<: [*{0}, *{0}]}}")):
        grown = (f"{b}: &{b} {more.format(a)}\n" for a, b in pairwise("abcdefghijklmnopqrstuvwxyz"))
        [found] = parse(f"a: &a {begin}\n" + "".join(grown))
        assert [fault.text for fault in found.faults] == [
            "not valid YAML: its aliases stand for far more than was written"
        ]
    [found] = parse("a: &a {b: *a, c: 1, c: 2}\n")
    assert [fault.text for fault in found.faults] == ["not valid YAML: line 1: an anchor whose value contains itself"]


def test_deep_nesting_is_refused() -> None:
    for sign in ("[", "{a: ", "- ", "? "):
        [found] = parse(sign * 100_000)
        [message] = [fault.text for fault in found.faults]
        # The limit of hpad, or that of later versions of PyYAML while they scan.
        assert re.match(r"not valid YAML: (nested more than 200 levels deep|exceeded maximum nesting depth)", message)
    assert not parse("[" * 100_000, ".json")[0].parsed


@pytest.mark.parametrize(
    "tag",
    [
        "bool x",
        "timestamp x",
        'int ""',
        "int x",
        "int 0x" + "1" * 9000,
        "int 0b" + "1" * 9000,
        "int 1" + ":1" * 9000,
        "float x",
        "omap 3",
        "binary x",
        "map [a]",
    ],
)
def test_a_tag_that_does_not_fit_its_value_is_an_error(tag: str) -> None:
    [found] = parse(f"a: !!{tag}\n")
    assert not found.parsed
    assert found.faults[0].text.startswith("not valid YAML: ")


def test_repeated_fields_are_found_in_linear_time() -> None:
    def cost(second: str) -> float:
        """Returns CPU seconds for 20,000 fields in pairs, where `second` begins the name of each second field."""
        began = time.process_time()
        pairs = ",".join(f'"a{number}":1,"{second}{number}":2' for number in range(10_000))
        [found] = parse(f"{{{pairs}}}", ".json")
        assert len(found.faults) == (10_000 if second == "a" else 0)
        items = ",".join([f'{{"a":1,"{second}":2}}'] * 10_000)
        assert len(parse(f'{{"kind": "List", "items": [{items}]}}', ".json")) == 10_000
        return time.process_time() - began

    different = cost("b")
    assert cost("a") < 100 * different  # a comparison of each with all others would take thousands of times as long


def test_the_lines_of_many_errors_are_found_in_linear_time() -> None:
    before = time.process_time()
    [found] = parse("".join(f"a{number}: 1\n" for number in range(10_000)))
    began = time.process_time()
    assert [found.line_of(f"a{number}") for number in range(10_000)] == list(range(1, 10_001))
    # A search from the top for each takes hundreds of times as long as the parser, a collection of garbage a few times.
    assert time.process_time() - began < 20 * (began - before)


def test_json_lines_are_read_after_a_broken_one() -> None:
    found = parse('{"a": 1}\n\n{"b"\n[]\n{"c": NaN}\n', ".jsonl")
    parsed = [(0, 1, True), (1, 3, False), (2, 4, True), (3, 5, False)]
    assert [(each.index, each.line, each.parsed) for each in found] == parsed
    [fault] = found[1].faults
    assert fault.text.startswith("not valid JSON: ")
    assert fault.text.endswith("(line 3, column 5)")
    assert found[3].faults[0].text == "not valid JSON: NaN is not allowed in JSON"


def test_json_has_lines_and_may_have_several_values() -> None:
    [found] = parse(json.dumps({"a": {"b": [1, 2]}}, indent=1), ".json")
    assert (found.line, found.line_of("a.b[1]")) == (1, 5)
    assert [each.line for each in parse('{"a": 1}\n{"b": 2} {"c": 3}', ".json")] == [1, 2, 2]
    [broken] = parse('{"a": 1,\n "b" 2}', ".json")
    assert (broken.line, broken.parsed) == (2, False)


def test_the_format_of_a_text_without_a_suffix_is_recognized() -> None:
    assert [each.value for each in parse('{"a": 1}\n{"b": 2}', "")] == [{"a": 1}, {"b": 2}]
    assert [each.value for each in parse("a: 1\n---\nb: 2", "")] == [{"a": 1}, {"b": 2}]


def test_a_list_counts_as_its_items() -> None:
    text = "a: 1\n---\nkind: List\napiVersion: v1\nitems:\n- {kind: X, x: 1}\n- kind: Z\n  z: 2\n  z: 3\n"
    found = parse(text)
    assert [(each.index, each.line, each.value.get("kind")) for each in found] == [
        (0, 1, None),
        (1, 6, "X"),
        (2, 7, "Z"),
    ]
    assert found[2].line_of("z") == 9
    assert [[fault.path for fault in each.faults] for each in found] == [[], [], ["z"]]


def test_items_of_a_typed_list_get_its_kind() -> None:
    [found] = parse("kind: HorizontalPodAutoscalerList\napiVersion: autoscaling/v2\nitems: [{spec: {}}]")
    assert found.value == {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", "spec": {}}


def test_binary_content_is_an_error() -> None:
    [found] = documents.parse(b"a: 1\nb: \xff\n", "file", ".yaml")
    assert found.line == 2
    assert "not UTF-8: byte 0xff" in found.faults[0].text
    [found] = documents.parse(b"a: \0\n", "file", ".yaml")
    assert not found.parsed
    [found] = documents.parse(b"\xef\xbb\xbfa: 1\n", "file", ".yaml")
    assert found.value == {"a": 1}


def test_read_chooses_the_format_by_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"b": 2}\n')
    assert len(documents.read(path)) == 2
    with pytest.raises(FileNotFoundError):
        documents.read(tmp_path / "none.yaml")


def test_a_file_that_cannot_be_read_keeps_no_other_of_its_folder_from_being_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 1\n")
    with (tmp_path / "b.yaml").open("wb") as large:
        large.truncate((64 << 20) + 1)
    (tmp_path / "c.yaml").write_text("c: 3\n")
    found = list(documents.read_all([str(tmp_path), str(tmp_path / "b.yaml"), str(tmp_path / "none.yaml")]))
    assert [Path(each.file).name for each in found] == ["a.yaml", "b.yaml", "c.yaml", "b.yaml", "none.yaml"]
    assert [each.value for each in found] == [{"a": 1}, None, {"c": 3}, None, None]
    faults = [str(fault) for each in found for fault in each.faults]
    large = "cannot be read: larger than 64 MiB"
    assert faults == [large, large, "cannot be read: No such file or directory"]


def test_an_empty_file_has_no_documents() -> None:
    assert parse("") == parse("# nothing\n") == parse("---\n...\n") == parse("", ".json") == parse("\n", ".jsonl") == []


LONG = "k" * (4 << 20)
HPA = (
    '{{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", '
    '"metadata": {{"name": "{}"}}, "spec": {{{}}}}}'
)


@pytest.mark.parametrize(
    "text",
    [
        HPA.format("a", f'"{LONG}": 1'),
        HPA.format("a", f'"maxReplicas": "{LONG}"'),
        HPA.format("a", f'"{LONG}": 1, "{LONG}": 2'),
        HPA.format(LONG, ""),
        HPA.format("a.a" * (1 << 20), ""),
        HPA.format("a", '"maxReplicas": 1').replace("Horizontal", LONG),
        f'"{LONG}"',
    ],
)
def test_long_texts_take_little_memory_and_no_message_repeats_them(text: str) -> None:
    tracemalloc.start()
    try:
        [found] = parse(text, ".json")
        loaded = hpas.load(found)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert loaded.errors
    assert max(len(each.text) for each in loaded.errors) < 4096
    assert len(str(loaded)) < 4096
    assert peak < 6 * len(text)


def test_values_without_punctuation_end_a_stream_of_json() -> None:
    """They are not counted as nodes, and none is an object of Kubernetes."""
    assert [each.value for each in parse("{} {} 1 {} 2", ".json")] == [{}, {}, 1]


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_half_of_a_surrogate_pair_is_an_error(suffix: str) -> None:
    first, second = parse('{"a": "\\ud83d\\ude00"}\n{"a": ["\\ud83d"]}', suffix)
    assert first.value == {"a": "😀"}
    assert [each.text for each in second.faults] == [
        "not valid JSON: \\ud83d is half of a surrogate pair, and no character"
    ]
