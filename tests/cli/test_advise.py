"""`hpad advise` over pasts in memory: its text, its JSON, and what it refuses."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import advice_pasts
from support.commands import called

from hpad.api import hpa as v2
from hpad.simulation.advice import reading
from hpad.simulation.advice.past import HpaPast

CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}
FLAGS = ("advise", "--prometheus", "http://127.0.0.1:1", "--color", "never")


def calm(name: str) -> HpaPast:
    """Returns the past of an HPA under a daily load, with nothing wrong."""
    target = {"type": "Utilization", "averageUtilization": 80}
    hpa = advice_pasts.spec({**CPU, "resource": {"name": "cpu", "target": target}}, name=name)
    return advice_pasts.lived(hpa, advice_pasts.daily(60, 300), days=2, samples=5000)


def stuck(name: str) -> HpaPast:
    """Returns the past of an HPA that cannot scale."""
    return advice_pasts.painted(advice_pasts.spec(CPU, name=name, low=3, high=3), 3.0, {"cpu": [50.0] * 2880})


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Given":
    return Given(tmp_path, monkeypatch)


class Given:
    """HPAs in files, and their pasts instead of a Prometheus."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "hpas"
        self.folder.mkdir()
        self._patch = monkeypatch

    def __call__(self, *pasts: HpaPast) -> str:
        known = {past.hpa.key: past for past in pasts}
        for past in pasts:
            (self.folder / f"{past.hpa.key.name}.yaml").write_text(yaml.safe_dump(document(past)))

        def read(server: Any, hpas: Sequence[v2.HorizontalPodAutoscaler], *rest: Any, **more: Any) -> Iterator[HpaPast]:
            for hpa in hpas:
                yield known[hpa.key]

        self._patch.setattr(reading, "read", read)
        return str(self.folder)


def document(past: HpaPast) -> dict[str, Any]:
    hpa = past.hpa
    return {
        "apiVersion": v2.API_VERSION,
        "kind": v2.KIND,
        "metadata": {"name": hpa.key.name, "namespace": hpa.key.namespace},
        "spec": v2.to_builtins(hpa)["spec"],
    }


def test_the_fleet_first_then_a_block_for_each_hpa_with_a_fault(given: Given) -> None:
    status, out, err = called(*FLAGS, "-f", given(calm("web"), stuck("fixed")))
    assert (status, err) == (0, "")
    rows = out.splitlines()
    assert rows[0].startswith("2 HPAs, 1 with faults")
    assert "5,000 values read from http://127.0.0.1:1" in out
    block = next(index for index, row in enumerate(rows) if row.startswith("shop/fixed"))
    assert "minimum-is-maximum" in "\n".join(rows[block:])
    assert rows[-1].startswith("shop/web")


def test_json_has_every_hpa_and_its_facts(given: Given) -> None:
    status, out, _ = called(*FLAGS, "-f", given(calm("web"), stuck("fixed")), "-o", "json", "--price", "2")
    found = json.loads(out)
    assert status == 0
    assert [item["name"] for item in found["items"]] == ["fixed", "web"]
    fixed = found["items"][0]
    assert fixed["faults"][0]["fault"] == "minimum-is-maximum"
    hours = 3 * 2879 / 60
    assert fixed["facts"]["replicaHours"] == pytest.approx(hours, abs=0.001)
    assert fixed["facts"]["cost"] == pytest.approx(2 * hours, abs=0.001)
    assert found["summary"]["withFaults"] == 1


def test_an_hpa_of_which_nothing_is_known_is_not_called_good(given: Given) -> None:
    hpa = advice_pasts.spec(CPU, name="new")
    unknown = advice_pasts.painted(hpa, [None] * 60, {"cpu": [None] * 60})
    folder = given(calm("web"), unknown)
    status, out, _ = called(*FLAGS, "-f", folder)
    assert (status, out.splitlines()[0]) == (0, "1 HPA, none with faults, none with advice")
    assert out.splitlines()[-1].startswith("shop/new: ")
    found = json.loads(called(*FLAGS, "-f", folder, "-o", "json")[1])
    assert [each["name"] for each in found["unread"]] == ["new"]


@pytest.mark.parametrize(
    ("flags", "step"), [((), 60.0), (("--from", "23h"), 15.0), (("--from", "1h", "--step", "30s"), 30.0)]
)
def test_less_than_a_day_is_read_at_each_period(
    given: Given, monkeypatch: pytest.MonkeyPatch, flags: Sequence[str], step: float
) -> None:
    folder, asked = given(calm("web")), []
    plain = reading.read

    def read(server: Any, hpas: Any, begin: Any, end: Any, step: float, *rest: Any) -> Iterator[HpaPast]:
        asked.append(step)
        return plain(server, hpas, begin, end, step, *rest)

    monkeypatch.setattr(reading, "read", read)
    assert called(*FLAGS, "-f", folder, *flags)[0] == 0
    assert asked == [step]


def test_what_cannot_be_written_is_told_before_anything_is_read(given: Given, tmp_path: Path) -> None:
    folder = given()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("")
    for flag, place, says in (
        ("--report", tmp_path / "no" / "page.html", "there is no folder"),
        ("--patches", tmp_path / "notes", "has mine.txt, which is no patch"),
    ):
        status, out, err = called(*FLAGS, "-f", folder, flag, str(place))
        assert (status, out, says in err) == (1, "", True)


def test_a_password_in_the_url_is_not_shown(given: Given) -> None:
    flags = ("advise", "--prometheus", "http://me:secret@127.0.0.1:1/prom", "-f", given(calm("web")))
    for form in ("text", "json"):
        status, out, err = called(*flags, "-o", form)
        assert status == 0
        assert "secret" not in out + err
        assert "http://127.0.0.1:1/prom" in out


def test_nothing_that_could_be_read_is_status_one(given: Given) -> None:
    hpa = advice_pasts.spec(CPU, name="new")
    folder = given(advice_pasts.painted(hpa, [None] * 60, {"cpu": [None] * 60}))
    status, out, _ = called(*FLAGS, "-f", folder)
    assert (status, out.splitlines()[-1].startswith("shop/new: ")) == (1, True)


def test_the_time_is_the_one_that_was_read(given: Given) -> None:
    folder = given(calm("web"))
    found = json.loads(called(*FLAGS, "-f", folder, "-o", "json")[1])
    assert (found["begin"], found["end"]) == ("2026-01-05T00:00:00Z", "2026-01-07T00:00:00Z")


def test_an_end_before_the_begin_by_default_names_both(given: Given) -> None:
    status, out, err = called(*FLAGS, "-f", given(calm("web")), "--to", "2026-01-01T00:00:00Z")
    assert (status, out) == (2, "")
    assert "--from 7d is not before --to 2026-01-01T00:00:00Z" in err
