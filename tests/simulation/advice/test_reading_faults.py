"""Reading the past of HPAs from servers that fail, break off, or answer what no Prometheus would."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support import faulty_prometheus
from support.faulty_prometheus import AskedQuery, Body, answering, error, matrix
from support.past_hpas import external, past_hpa

from hpad.simulation import prometheus
from hpad.simulation.advice import reading
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.reading import ReadingOptions, answers
from hpad.simulation.history import HistoryError
from hpad.simulation.prometheus import QueriedPrometheus

BEGIN, END, STEP = 1_790_000_000, 1_790_006_000, 60
COUNT = 101
CURRENT = "kube_horizontalpodautoscaler_status_current_replicas"
USAGE = "container_cpu_usage_seconds_total"
EXPORTED = "exported_"


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "PAUSES", (0.0, 0.0, 0.0))


def well(query: AskedQuery) -> Body | None:
    """Answers as a Prometheus with the HPAs shop/a and shop/b would: 2 replicas, 40 % CPU."""
    if EXPORTED in query.expression:
        return None
    if query.expression.startswith("count("):
        return matrix(({}, [[query.end, "1"]]))
    if query.step and CURRENT in query.expression:
        names = [name for name in ("a", "b") if f'"{name}"' in query.expression or "a|b" in query.expression]
        labels = [{"namespace": "shop", "horizontalpodautoscaler": name} for name in names]
        return matrix(*((each, [[time, "2"] for time in query.times]) for each in labels))
    if query.expression.startswith("100 * sum("):
        return matrix(({}, [[time, "40"] for time in query.times]))
    return None


def pasts(
    url: str,
    *names: str,
    options: ReadingOptions = ReadingOptions(),  # noqa: B008 (it is immutable)
    end: int = END,
    begin: int = BEGIN,
) -> list[HpaPast]:
    span = (datetime.fromtimestamp(each, UTC) for each in (begin, end))
    hpas = [past_hpa(name) for name in names or ("a",)]
    return list(reading.read(QueriedPrometheus(url), hpas, *span, STEP, options=options))


def faulty(fault: Callable[[AskedQuery], Body | None], when: Callable[[AskedQuery], bool]) -> faulty_prometheus.Answer:
    """Returns an answer with a fault for some queries."""
    return lambda query: fault(query) if when(query) else well(query)


def of_cpu(query: AskedQuery) -> bool:
    return query.expression.startswith("100 * sum(")


def of_replicas(query: AskedQuery) -> bool:
    return query.expression.startswith(CURRENT)


FAULTS = {
    "503": lambda query: error(503, "in the middle"),
    "429": lambda query: error(429, "slow down"),
    "truncated JSON": lambda query: Body(200, b'{"status":"success","data":{"result":[{"metric":{},"values":[[17'),
    "a broken connection": lambda query: Body(200, b'{"status":"success"', 1000),
    "a page": lambda query: Body(200, b"<html>Sign in</html>"),
    "no result": lambda query: Body(200, b'{"status":"success","data":{}}'),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_asks_again_after_a_passing_fault(fault: faulty_prometheus.Answer) -> None:
    times = iter([True, True, False])

    def once(query: AskedQuery) -> Body | None:
        return fault(query) if of_replicas(query) and next(times, False) else well(query)

    with answering(once) as (url, _):
        (past,) = pasts(url)
    assert past.load.columns["replicas"] == [2] * COUNT
    assert past.load.columns["cpu"] == [40] * COUNT
    assert past.problem == ""


def test_goes_on_without_the_hpas_that_stay_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_VALUES", COUNT)  # one HPA in a batch

    def fails(query: AskedQuery) -> bool:
        return of_replicas(query) and '"a"' in query.expression

    with answering(faulty(lambda query: error(503, "overloaded"), fails)) as (url, asked):
        first, second = pasts(url, "a", "b")
    assert first.problem == "the server answered: 503 overloaded"
    assert set(first.load.columns["replicas"]) == {None}
    assert first.readings["cpu"].problem == first.problem
    assert second.problem == ""
    assert second.load.columns["cpu"] == [40] * COUNT
    assert sum(fails(query) for query in asked) == 4


def test_a_metric_that_cannot_be_read_says_why_and_the_rest_is_there() -> None:
    with answering(faulty(lambda query: error(422, "many-to-many matching"), of_cpu)) as (url, asked):
        (past,) = pasts(url)
    assert past.load.columns == {"replicas": [2] * COUNT}
    assert past.readings["cpu"].problem == (
        "the server answered: 422 many-to-many matching, nor from the status of the HPA"
    )
    assert sum(map(of_cpu, asked)) == 1, "an error of the query is not repeated"


def test_values_that_are_no_numbers_are_gaps() -> None:
    odd = ["NaN", "+Inf", "-Inf", None, "", "x", True, {}, []]

    def answer(query: AskedQuery) -> Body | None:
        values = [[time, odd[index] if index < len(odd) else "7"] for index, time in enumerate(query.times)]
        return matrix(({}, [*values, ["late", "1"], [], None, [query.end + 30.2, "9"]]))

    with answering(faulty(answer, of_cpu)) as (url, _):
        (past,) = pasts(url)
    column = past.load.columns["cpu"]
    assert set(column[: len(odd)]) == {None}
    assert column[len(odd) :] == [7] * (COUNT - len(odd))


def test_doubled_series_count_once_and_unknown_hpas_do_not() -> None:
    def answer(query: AskedQuery) -> Body | None:
        found = []
        for name, instance, count in (("a", "x", "2"), ("a", "y", "3"), ("c", "x", "9"), ("A", "x", "9")):
            labels = {"namespace": "shop", "horizontalpodautoscaler": name, "instance": instance}
            times = query.times[:50] if instance == "y" else query.times
            found.append((labels, [[time, count] for time in times]))
        return matrix(*found, ({}, [[query.begin, "9"]]))

    with answering(faulty(answer, of_replicas)) as (url, _):
        (past,) = pasts(url)
    assert past.load.columns["replicas"] == [3] * 50 + [2] * (COUNT - 50)


def test_does_not_mix_the_values_of_several_clusters() -> None:
    def answer(query: AskedQuery) -> Body | None:
        labels = {"namespace": "shop", "horizontalpodautoscaler": "a"}
        return matrix(*((labels | {"cluster": each}, [[query.begin, "2"]]) for each in ("prod", "test")))

    text = r"HPA shop/a of several clusters, cluster \['prod', 'test'\]; say which in the file of --series: matchers: c"
    with answering(faulty(answer, of_replicas)) as (url, _), pytest.raises(HistoryError, match=text):
        pasts(url)


def test_divides_a_query_that_loads_too_many_samples() -> None:
    most = 1000
    end = BEGIN + 60 * 2999

    def large(query: AskedQuery) -> bool:
        return of_cpu(query) and len(query.times) > most

    text = "query processing would load too many samples into memory in query execution"
    with answering(faulty(lambda query: error(422, text), large)) as (url, asked):
        (past,) = pasts(url, end=end)
    assert past.load.columns["cpu"] == [40] * 3000
    assert [len(query.times) for query in asked if of_cpu(query)] == [3000, 1500, 750, 750, 1500, 750, 750]


def test_divides_a_query_whose_series_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MOST_PLACES", 4000)

    def short(query: AskedQuery) -> Body:
        return matrix(*(({"part": str(part)}, [[time, "20"] for time in query.times][:1]) for part in range(2)))

    with answering(faulty(short, of_cpu)) as (url, asked):
        pasts(url, end=BEGIN + 60 * 2999)
    assert [len(query.times) for query in asked if of_cpu(query)] == [3000, 1500, 1500]


def test_hides_a_token_that_the_server_quotes(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter22-and-long\n")
    span = (datetime.fromtimestamp(each, UTC) for each in (BEGIN, END))
    with (
        answering(lambda _: error(401, "Bearer hunter22-and-long is unknown")) as (url, _),
        pytest.raises(HistoryError, match=r"401 Bearer \*\*\* is unknown"),
    ):
        prometheus.read(QueriedPrometheus(url, tmp_path / "token"), {"cpu": "up"}, *span, STEP)


def test_reads_long_times_in_parts() -> None:
    end = BEGIN + 60 * 24_999
    with answering(well) as (url, asked):
        (past,) = pasts(url, end=end)
    assert past.load.columns["replicas"] == [2] * 25_000
    assert [len(query.times) for query in asked if of_replicas(query)] == [11_000, 11_000, 3_000]


def test_posts_long_queries_and_asks_for_no_compression_nearby(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "_LONGEST_IN_URL", 200)
    with answering(well) as (url, asked):
        pasts(url)
        pasts(url.replace("127.0.0.1", "127.1"))
    assert {query.method for query in asked if len(query.expression) <= 200} == {"GET"}
    assert {query.method for query in asked if len(query.expression) > 200} == {"POST"}
    assert {query.encoding for query in asked} == {"identity", "gzip, deflate"}


def test_bounds_the_values_of_answers() -> None:
    def answer(query: AskedQuery) -> Body | None:
        return matrix(*(({"part": str(part)}, [[time, "1"] for time in query.times]) for part in range(50)))

    with (
        answering(faulty(answer, of_cpu)) as (url, _),
        pytest.raises(HistoryError, match=r"the answers have more than 3,000 values; choose a shorter time, a larger"),
    ):
        pasts(url, options=ReadingOptions(most_samples=3000))


def test_does_not_read_an_endless_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MOST_BYTES", 1 << 20)
    with answering(faulty(lambda query: Body(200, b"[" * (3 << 20)), of_cpu)) as (url, _):
        (past,) = pasts(url)
    assert past.readings["cpu"].problem.startswith("the answer has more than 1 MiB")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (error(401, "no token"), "Prometheus: the server answered: 401 no token"),
        (Body(404, b"no such page\x1b[2J"), r"Prometheus: the server answered: 404 no such page\\u001b"),
        (error(503, "starting"), "Prometheus: the server answered: 503 starting"),
    ],
)
def test_says_at_once_that_the_server_does_not_answer(body: Body, text: str) -> None:
    with answering(lambda query: body) as (url, _), pytest.raises(HistoryError, match=text):
        pasts(url)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://127.0.0.1:1", "cannot be reached: Connection refused"),
        ("ftp://x", "not one such as http"),
        ("x", "not one"),
    ],
)
def test_says_that_the_server_is_not_there(url: str, text: str) -> None:
    with pytest.raises(HistoryError, match=text):
        pasts(url)


def test_says_that_the_server_does_not_speak_tls() -> None:
    with answering(lambda query: {}) as (url, _), pytest.raises(HistoryError, match=r"no TLS connection: .*SSL"):
        pasts(url.replace("http://", "https://", 1))


class Breaking:
    """Answers so many range queries, and then fails as a server that has gone."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, query: AskedQuery) -> Body | None:
        self.left -= bool(query.step)
        return error(503, "gone") if self.left < 0 else well(query)


def test_continues_with_the_answers_of_a_run_that_broke_off(tmp_path: Path) -> None:
    options = ReadingOptions(cache=tmp_path / "answers")
    breaking = Breaking(9)
    with answering(breaking) as (url, asked):
        (first,) = pasts(url, options=options)
        assert "gone" in first.readings["cpu"].problem or first.problem
        kept = {query for query in asked[:9] if query.step}
        breaking.left = 1000
        del asked[:]
        (second,) = pasts(url, options=options, begin=BEGIN + 240, end=END + 240)
        assert second.load.times[0] == BEGIN, "the times are those of the first run"
        assert second.load.columns["cpu"] == [40] * COUNT
        assert not kept & set(asked)
    assert not list((tmp_path / "answers").iterdir()), "a complete run leaves nothing"


@pytest.mark.parametrize("content", [b"", b"no zlib", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_a_damaged_answer_in_the_folder_is_asked_for_again(tmp_path: Path, content: bytes) -> None:
    options = ReadingOptions(cache=tmp_path)
    breaking = Breaking(9)
    with answering(breaking) as (url, _):
        pasts(url, options=options)
        for path in tmp_path.glob("*.answer"):
            path.write_bytes(content)
        breaking.left = 1000
        (past,) = pasts(url, options=options)
    assert past.load.columns["cpu"] == [40] * COUNT


def test_another_time_or_step_does_not_continue(tmp_path: Path) -> None:
    breaking = Breaking(9)
    with answering(breaking) as (url, _):
        pasts(url, options=ReadingOptions(cache=tmp_path))
        breaking.left = 1000
        (past,) = pasts(url, options=ReadingOptions(cache=tmp_path), end=END + 60)
    assert past.load.times[-1] == END + 60
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with answering(well) as (url, _), pytest.raises(HistoryError, match=r"file/answers: cannot be used for answers"):
        pasts(url, options=ReadingOptions(cache=tmp_path / "file" / "answers"))


@pytest.fixture
def many() -> Iterator[tuple[str, list[AskedQuery]]]:
    with answering(well) as server:
        yield server


def test_an_abandoned_reading_ends_its_threads(
    many: tuple[str, list[AskedQuery]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_VALUES", COUNT)
    url, asked = many
    span = (datetime.fromtimestamp(each, UTC) for each in (BEGIN, END))
    hpas = [past_hpa(f"hpa-{number:03}", external("x", "Value", "1")) for number in range(100)]
    found = reading.read(QueriedPrometheus(url), hpas, *span, STEP)
    next(found)
    found.close()  # type: ignore[attr-defined]
    count = len(asked)
    assert count < 100
    assert len(asked) == count
