"""Documents in JSON, XML, YAML and the text format of Prometheus, over real HTTP."""

from typing import Any

import msgspec
import pytest
from support.http_stub import Stub

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, ExternalSample
from hpad_adapters.http_json import HttpJson

BODIES = {
    "json": b'{"jobs": [{"n": 3}, {"n": 4}], "by.name": 5, "empty": [], "text": "1500m"}',
    "yaml": b"jobs:\n- n: 3\n- n: 4\nby.name: 5\nempty: []\ntext: 1500m\n",
    "xml": b'<?xml version="1.0"?><all xmlns="urn:x" max="9"><jobs><n> 3 </n></jobs><jobs><n u="s">4</n></jobs>'
    b"<by.name>5</by.name><text>1500m</text></all>",
    "prometheus": b"# HELP jobs Waiting.\n# TYPE jobs gauge\n"
    b'jobs{queue="mail",state="new"} 3\njobs{queue="web"} 4 1700000000000\njobs_total 9\nbad{ 1\njobs 1e3\nnan NaN\n',
}


async def ask(stub: Stub, context: Context, body: bytes, **metric: Any) -> Answer:
    stub.answers(body, content_type="application/octet-stream")
    settings = {"metrics": {"depth": {"url": f"{stub.url}/stats", **metric}}, "request_timeout": "60s"}
    adapter = HttpJson(msgspec.convert(settings, HttpJson.Settings), context)
    (answer,) = await adapter.answer([testing.external("depth")])
    return answer


@pytest.mark.parametrize(
    ("format", "path", "values"),
    [
        *((format, "jobs[1].n", (4000,)) for format in ("json", "yaml")),
        *((format, "jobs[*].n", (3000, 4000)) for format in ("json", "yaml")),
        *((format, "jobs[#]", (2000,)) for format in ("json", "yaml")),
        *((format, "empty[#]", (0,)) for format in ("json", "yaml")),
        *((format, '["by.name"]', (5000,)) for format in ("json", "yaml")),
        *((format, "text", (1500,)) for format in ("json", "yaml")),
        ("xml", "all.jobs[1].n", (4000,)),
        ("xml", "all.jobs[*].n", (3000, 4000)),
        ("xml", "all.jobs[#]", (2000,)),
        ("xml", "all.text[*]", (1500,)),
        ("xml", 'all["by.name"]', (5000,)),
        ("xml", "all.@max", (9000,)),
        ("prometheus", "jobs", (3000, 4000, 1_000_000)),
        ("prometheus", 'jobs{queue="mail", state="new"}', (3000,)),
        ("prometheus", 'jobs{queue=~"m.*|web",}', (3000, 4000)),
        ("prometheus", 'jobs{queue!~"m.*"}', (4000, 1_000_000)),
        ("prometheus", 'jobs{queue!="mail",state=""}', (4000, 1_000_000)),
        ("prometheus", "jobs_total", (9000,)),
    ],
)
async def test_numbers(stub: Stub, context: Context, format: str, path: str, values: tuple[int, ...]) -> None:
    answer = await ask(stub, context, BODIES[format], format=format, path=path)
    assert isinstance(answer, ExternalSample), answer
    assert answer.values == values


@pytest.mark.parametrize(
    ("format", "body"), [("json", b'{"a": 4}'), ("yaml", b"a: 4"), ("xml", b"<a>4</a>"), ("prometheus", b"a 4")]
)
async def test_a_byte_order_mark_is_no_part_of_the_document(
    stub: Stub, context: Context, format: str, body: bytes
) -> None:
    answer = await ask(stub, context, b"\xef\xbb\xbf" + body, format=format, path="a")
    assert isinstance(answer, ExternalSample)
    assert answer.values == (4000,)


@pytest.mark.parametrize(
    ("number", "milli"),
    [("30.000000000000004", 30_000), ("29.999999999999996", 30_000), ("-5.000000000000001", -5000), ("0.0004", 1)],
)
async def test_the_last_digits_of_a_float_are_noise(stub: Stub, context: Context, number: str, milli: int) -> None:
    """A target of 10 wants three replicas of 30.000000000000004, and not four."""
    for format, body in (("json", f'{{"a": {number}}}'), ("yaml", f"a: {number}"), ("prometheus", f"a {number}")):
        answer = await ask(stub, context, body.encode(), format=format, path="a")
        assert isinstance(answer, ExternalSample), answer
        assert answer.values == (milli,)


@pytest.mark.parametrize("text", ["-", ".", "k", "m", "+", "-.", "Ki"])
async def test_a_text_without_a_digit_is_no_number(stub: Stub, context: Context, text: str) -> None:
    """Kubernetes reads it as the quantity 0; a server writes it where it has no number."""
    for format, body in (("json", f'{{"a": "{text}"}}'), ("yaml", f'a: "{text}"'), ("xml", f"<a>{text}</a>")):
        answer = await ask(stub, context, body.encode(), format=format, path="a")
        assert isinstance(answer, AdapterError), format
        assert "another kind" in answer.message


@pytest.mark.parametrize(
    ("format", "path", "error"),
    [
        ("json", "jobs[*]", "another kind"),
        ("yaml", "gone", "no 'gone'"),
        ("yaml", "empty[*]", "is empty"),
        ("xml", "all.jobs.n", "there are 2 elements of that name; write [0] or [*]"),
        ("xml", "all.gone", "no 'gone'"),
        ("xml", "all", "another kind"),
        ("xml", "all.jobs[2].n", "too short"),
        ("prometheus", "gone", "no series matches"),
        ("prometheus", 'jobs{queue="gone"}', "no series matches"),
        ("prometheus", "bad", "not a sample"),
        ("prometheus", "nan", "not a sample with a finite number"),
    ],
)
async def test_what_is_missing_is_an_error(stub: Stub, context: Context, format: str, path: str, error: str) -> None:
    answer = await ask(stub, context, BODIES[format], format=format, path=path)
    assert isinstance(answer, AdapterError)
    assert error in answer.message
    assert (answer.blame, answer.alive) == ("source", True)


ENTITIES = b'<!DOCTYPE a [<!ENTITY b "12345678"><!ENTITY c "&b;&b;&b;">]><a>&c;</a>'
OUTSIDE = b'<!DOCTYPE a SYSTEM "http://127.0.0.1:1/a.dtd"><a>1</a>'


@pytest.mark.parametrize(
    ("format", "body", "error"),
    [
        ("xml", ENTITIES, "document type (DOCTYPE)"),
        ("xml", OUTSIDE, "document type (DOCTYPE)"),
        ("xml", b"<a>" * 200, "more than 100 levels"),
        ("xml", b"<a>" + b"<b/>" * 60_000 + b"</a>", "max_elements (50000)"),
        ("xml", b"<a " + b" ".join(b'b%d=""' % number for number in range(60_000)) + b"/>", "max_elements (50000)"),
        ("xml", b"<a>1", "something other than XML"),
        ("xml", b"", "something other than XML"),
        ("xml", b'<?xml version="1.0" encoding="UTF-88"?><a>1</a>', "something other than XML"),
        ("yaml", b"a: &b [*b]", "something other than YAML"),
        ("yaml", b"a: &b [1, 1]\nc: &d [" + b"*b," * 200 + b"]\ne: [" + b"*d," * 200 + b"]", "max_elements (50000)"),
        ("yaml", b"a: !!python/object:os.system 1", "something other than YAML"),
        ("yaml", b"a: " + b"{b: " * 300 + b"1" + b"}" * 300, "something other than YAML"),
        ("yaml", b"a: [" + b"1," * 60_000 + b"]", "max_elements (50000)"),
        ("yaml", b"a: [", "something other than YAML"),
        ("yaml", b"a: " + b"9" * 5000, "something other than YAML"),
        ("yaml", b"a: 1\n---\na: 2\n", "something other than YAML"),
        ("prometheus", b"a 1\n" * 60_000, "max_elements (50000)"),
        ("prometheus", b"a \xff\n", "not a sample"),
        ("prometheus", b"", "no series matches"),
    ],
)
async def test_what_could_stand_for_more_is_refused(
    stub: Stub, context: Context, format: str, body: bytes, error: str
) -> None:
    answer = await ask(stub, context, body, format=format, path="a")
    assert isinstance(answer, AdapterError)
    assert error in answer.message
    assert answer.alive


@pytest.mark.parametrize(
    ("format", "accepted"),
    [
        ("json", "application/json"),
        ("xml", "application/xml"),
        ("yaml", "application/yaml"),
        ("prometheus", "text/plain"),
    ],
)
async def test_the_format_is_asked_for(stub: Stub, context: Context, format: str, accepted: str) -> None:
    await ask(stub, context, BODIES[format], format=format, path="a")
    assert stub.requests[0].headers["Accept"].startswith(accepted)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"format": "prometheus", "path": "jobs{"}, "path: 'jobs{' is not of the form"),
        ({"format": "prometheus", "path": "jobs{a=b}"}, "path: .*a=b"),
        ({"format": "prometheus", "path": 'jobs{a=~"("}'}, "path: .*regular expression"),
        ({"format": "prometheus", "path": 'jobs{a=~"[[:alpha:]]+"}'}, "path: .*Python has no .:alpha:."),
        ({"path": "jobs[#].n"}, "path"),
        ({"path": "", "format": "csv"}, "csv"),
        ({"path": "", "method": "GET", "body": "x"}, "body: a GET has none"),
        ({"path": "", "method": "DELETE"}, "DELETE"),
        ({"path": "", "url": "http://h/?a=<<now+900000h>>"}, "url: .* is not a time"),
        ({"path": "", "pods": "sum"}, "url: .* does not name a Service"),
        ({"path": "", "missing_pods": "average"}, "missing_pods: has an effect with pods: sum, avg, max or min only"),
    ],
)
def test_invalid_metrics_are_refused(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=error):
        msgspec.convert({"metrics": {"depth": {"url": "http://h", **settings}}}, HttpJson.Settings)
