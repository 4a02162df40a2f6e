"""What the demo says at the end."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from hpad.lab.demo import report
from hpad.lab.demo.chart import Point
from hpad.lab.demo.report import Report, Rescale, Result
from hpad.lab.demo.style import Style

UP = Rescale(11.0, 1, 7, "305%/50%", "scale web from 1 to 7: cpu above target (305% / 50%)")
RESULT = Result(
    name="web",
    heading="A web server",
    label="CPU 305%",
    points=[Point(0, 1, 0.0), Point(10, 7, 305.0), Point(30, 1, 0.0)],
    rescales=[UP],
    decisions=30,
    start=1,
    peak=7,
    end=1,
    reading="305%/50%",
    reacted=4.25,
    peaked=4.5,
    returned=10.0,
)
GOOD = Report([RESULT], 31.0, 60)
BAD = Report([replace(RESULT, problem="at least 5 were to run within 60 s")], 80.0, 60)
NOTHING = Report([], 1.0, 6, "rabbitmq-server is not installed")


def told(seen: Report, width: int = 80) -> str:
    return "\n".join(report.text(seen, width, Style()))


def test_people_are_told_the_way_the_reasons_and_the_cost():
    text = told(GOOD)
    for part in (
        "A web server",
        "┤",
        "1 → 7 → 1",
        "from 305%/50%",
        "0:11  scale web from 1 to 7",
        "30 decisions",
        "60 requests",
        "2.0 a decision",
        "✓",
    ):
        assert part in text


def test_it_ends_with_what_to_do_next_where_all_went_well():
    text = "\n".join(report.text(GOOD, 120, Style(), ".venv/bin/hpad"))
    assert text.rstrip().splitlines()[-4].startswith("  .venv/bin/hpad cluster --hpad FILE…")
    assert "run --dry-run" in told(GOOD).splitlines()[-2]
    assert "run --dry-run" not in told(BAD) + told(NOTHING)


@pytest.mark.parametrize("command", [command for command, _ in report.NEXT])
def test_what_comes_next_are_commands_that_there_are(command: str):
    options = [each for each in command.split() if each.startswith("--")]
    asked = [sys.executable, "-m", "hpad", command.split()[0], "--help"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert all(option in said for option in options)


def test_a_failure_names_the_half_and_the_reason():
    assert not BAD.ok
    assert "✗ web: at least 5 were to run within 60 s" in told(BAD)
    assert "✓" not in told(BAD)


def test_nothing_shown_is_no_success():
    assert not NOTHING.ok
    assert "rabbitmq-server is not installed" in told(NOTHING)
    assert "✓" not in told(NOTHING)


def test_a_half_that_was_left_out_does_not_spoil_the_other():
    left_out = replace(GOOD, skipped="rabbitmq-server is not installed")
    assert left_out.ok
    assert "not installed" in told(left_out)


@pytest.mark.parametrize("width", [40, 60, 80, 110])
def test_text_fits_the_terminal(width: int):
    long = replace(UP, sentence="words " * 60)
    seen = Report([replace(RESULT, rescales=[long])], 31.0, 60, "reason " * 40)
    assert max(map(len, told(seen, width).split("\n"))) <= width


def test_machines_get_the_same():
    told = json.loads(json.dumps(report.machine(GOOD)))
    assert told["ok"] is True
    (half,) = told["halves"]
    assert half["replicas"] == {"start": 1, "peak": 7, "end": 1}
    assert half["secondsToDecide"] == 4.25
    assert half["rescales"][0]["why"] == UP.sentence
    assert half["consumers"] is None
    assert report.machine(BAD)["halves"][0]["problem"]
