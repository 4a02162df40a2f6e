"""The report at the end of the demo."""

import io
import json
import sys
from dataclasses import replace

import pytest
from blockbuster import BlockBuster

from hpad import cli
from hpad.lab.demo import report, show
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
BAD = Report([replace(RESULT, problem="expected at least 5 processes within 60 s")], 80.0, 60)
NOTHING = Report([], 1.0, 6, "rabbitmq-server is not installed")


def as_text(result: Report, width: int = 80) -> str:
    return "\n".join(report.text(result, width, Style()))


def test_the_text_has_replicas_decisions_and_requests():
    text = as_text(GOOD)
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


def test_a_successful_report_ends_with_the_next_commands():
    text = "\n".join(report.text(GOOD, 120, Style(), ".venv/bin/hpad"))
    assert text.rstrip().splitlines()[-5].startswith("  .venv/bin/hpad cluster --hpad FILE…")
    assert "run --dry-run" in as_text(GOOD).splitlines()[-2]
    assert "run --dry-run" not in as_text(BAD) + as_text(NOTHING)


@pytest.mark.parametrize("command", [command for command, _ in report.NEXT])
def test_the_next_commands_and_their_options_exist(command: str, capsys: pytest.CaptureFixture[str]):
    options = [each for each in command.split() if each.startswith("--")]
    with pytest.raises(SystemExit) as ended:
        cli.main([command.split()[0], "--help"])
    assert ended.value.code == 0
    help_text = capsys.readouterr().out
    assert all(option in help_text for option in options)


def test_a_failure_names_the_half_and_the_reason():
    assert not BAD.ok
    assert "✗ web: expected at least 5 processes within 60 s" in as_text(BAD)
    assert "✓" not in as_text(BAD)


def test_a_report_without_results_is_a_failure():
    assert not NOTHING.ok
    assert "rabbitmq-server is not installed" in as_text(NOTHING)
    assert "✓" not in as_text(NOTHING)


def test_a_skipped_half_is_not_a_failure():
    left_out = replace(GOOD, skipped="rabbitmq-server is not installed")
    assert left_out.ok
    assert "not installed" in as_text(left_out)


@pytest.mark.parametrize("width", [40, 60, 80, 110])
def test_text_fits_the_terminal(width: int):
    long = replace(UP, sentence="words " * 60)
    seen = Report([replace(RESULT, rescales=[long])], 31.0, 60, "reason " * 40)
    assert max(map(len, as_text(seen, width).split("\n"))) <= width


def test_the_machine_report_has_the_same_facts():
    decoded = json.loads(json.dumps(report.machine(GOOD)))
    assert decoded["ok"] is True
    (half,) = decoded["halves"]
    assert half["replicas"] == {"start": 1, "peak": 7, "end": 1}
    assert half["secondsToDecide"] == 4.25
    assert half["rescales"][0]["why"] == UP.sentence
    assert half["consumers"] is None
    assert report.machine(BAD)["halves"][0]["problem"]


def test_a_terminal_gets_colours_and_no_control_characters_of_others(
    monkeypatch: pytest.MonkeyPatch, no_blocking_calls: BlockBuster
):
    no_blocking_calls.deactivate()  # the command looks for programs

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    async def run(*_: object) -> Report:
        return Report([replace(RESULT, problem="the broker said \x1b[2Jnothing")], 80.0, 60)

    out = Terminal()
    monkeypatch.setattr(show, "run", run)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert cli.main(["demo", "--only", "cpu"]) == 1
    assert "\x1b[1mA web server" in out.getvalue()
    assert "said \\u001b[2Jnothing" in out.getvalue()
