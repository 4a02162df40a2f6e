"""Watches: lines from chunks, changes from lines, and the backoff."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpad.kube import watch
from hpad.kube.errors import ApiError
from hpad.kube.reflector import Backoff

_LINE = st.binary(min_size=1, max_size=30).filter(lambda text: b"\n" not in text and text.strip())


@given(st.lists(_LINE, max_size=8), st.binary(max_size=20).filter(lambda text: b"\n" not in text), st.data())
def test_lines_do_not_depend_on_the_chunks(lines, rest, data):
    stream = b"".join(line + b"\n" for line in lines) + rest
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader, found = watch.Lines(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found.extend(reader.feed(stream[start:end]))
    assert found == lines


def test_a_line_of_many_chunks_has_no_size_limit():
    reader = watch.Lines()
    for _ in range(5_000):
        assert list(reader.feed(b"x" * 1_000)) == []
    (line,) = reader.feed(b"\n")
    assert len(line) == 5_000_000


@pytest.mark.parametrize("name", ["hpa_added_modified_deleted_bookmark", "hpa_controller_run", "hpa_watch_rv0"])
def test_recorded_streams_are_read(recorded, name):
    lines = recorded(f"watch/{name}")["body"]
    assert lines
    for line in lines:
        change = watch.decode(json.dumps(line).encode())
        assert change.type == line["type"]
        assert json.loads(bytes(change.object)) == line["object"]


@pytest.mark.parametrize("name", ["hpa_410_error_event", "pods_410_error_event"])
def test_a_recorded_error_says_that_the_version_has_expired(recorded, name):
    (line,) = recorded(f"watch/{name}")["body"]
    with pytest.raises(ApiError) as caught:
        watch.decode(json.dumps(line).encode())
    assert caught.value.gone
    assert caught.value.reason == "Expired"
    assert caught.value.message == line["object"]["message"]


@pytest.mark.parametrize(
    "line",
    [
        b"<html>503</html>",
        b"service unavailable",
        b'{"type":"ADDED","object":{"metadata":{"na',
        b'{"type":"ADDED"}',
        b'{"kind":"Status","code":500}',
        b'{"type":"SURPRISE","object":{}}',
        b'["ADDED",{}]',
        b"\x00\xff",
    ],
)
def test_a_line_that_is_no_change_is_an_error(line):
    with pytest.raises(ApiError) as caught:
        watch.decode(line)
    assert caught.value.status == 0
    assert not caught.value.gone


def test_delays_double_up_to_a_limit_until_a_reset():
    backoff = Backoff(1.0, 10.0)
    waits = [backoff.next() for _ in range(8)]
    for wait, most in zip(waits, [1, 2, 4, 8, 10, 10, 10, 10], strict=True):
        assert most / 2 <= wait <= most
    backoff.reset()
    assert backoff.next() <= 1.0


class Source:
    """A client whose stream has these chunks; `steps` are what was done with them, in order."""

    def __init__(self, *chunks):
        self.chunks, self.steps = chunks, []

    async def stream(self, path, params, silence, pause):
        for chunk in self.chunks:
            self.steps += ["read", pause] if pause else ["read"]
            yield chunk


async def test_lines_wait_for_others_to_be_read_together_and_those_of_lists_do_not():
    line = b'{"type":"ADDED","object":{}}'
    source = Source(line + b"\n" + line[:5], line[5:] + b"\n" + line + b"\n", b"\n")
    async for lines in watch.lines(source, "/x", {}, 1.0, watch.TOGETHER):
        source.steps.append(lines)
    pause = watch.TOGETHER
    assert source.steps == ["read", pause, [line], "read", pause, [line, line], "read", pause]
    listed = Source(line + b"\n", line + b"\n")
    assert [lines async for lines in watch.lines(listed, "/x", {}, 1.0)] == [[line], [line]]
    assert listed.steps == ["read", "read"]
    assert watch.TOGETHER <= 0.1, "later than a tick"


@pytest.mark.parametrize("name", ["hpa_added_modified_deleted_bookmark", "hpa_410_error_event"])
def test_the_heading_of_a_recorded_line_is_what_the_line_says(recorded, name):
    for line in recorded(f"watch/{name}")["body"]:
        found, metadata = watch.heading(json.dumps(line).encode()), line["object"]["metadata"]
        place = found.object.metadata
        expected = [metadata.get(field, "") for field in ("namespace", "name", "resourceVersion")]
        assert (found.type, [place.namespace, place.name, place.resource_version]) == (line["type"], expected)


@pytest.mark.parametrize("line", [b"<html>", b'{"type":"ADDED"}', b'{"type":"ADDED","object":{"meta', b"\xff"])
def test_a_line_that_is_no_change_has_no_heading(line):
    assert watch.heading(line) is None


def test_a_batch_ends_after_64_small_objects_or_one_that_is_large() -> None:
    """Authors choose how large a pod is: 64 of a megabyte would hold up the loop for seconds."""
    batches = watch.Batches()
    assert [batches.ends(b"") for _ in range(128)] == [*([False] * 63), True] * 2
    assert [watch.Batches().ends(b"x" * 1_000_000) for _ in range(3)] == [True] * 3
