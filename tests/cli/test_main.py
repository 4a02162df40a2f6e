"""The command line as a whole."""

import argparse
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import hpad
from hpad import cli
from hpad.cli.failure import Failure

HPAD = (sys.executable, "-m", "hpad")


def command(monkeypatch: pytest.MonkeyPatch, run: Callable[[argparse.Namespace], int]) -> None:
    """Put a command of our own where `version` is."""

    def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
        commands.add_parser("version").set_defaults(run=run)

    module = types.ModuleType("hpad.cli.version")
    module.add_parser = add_parser  # type: ignore[attr-defined]  # what every command has
    monkeypatch.setitem(sys.modules, "hpad.cli.version", module)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"hpad {hpad.__version__}\n")
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"hpad {hpad.__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["check"], ["check", "-o", "xml", "x"]])
def test_wrong_use_ends_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: hpad")


@pytest.mark.parametrize(
    ("option", "hint"), [("--sync-periood=5s", "; did you mean --sync-period?"), ("--nonsense", "")]
)
def test_an_option_that_is_not_there(option: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", option])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"hpad run: unknown: {option}{hint}\n`hpad run --help` tells all.\n"


def test_what_comes_before_the_command_belongs_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--kubeconfig", "x", "run"])
    assert ended.value.code == 2
    assert "--kubeconfig comes too early: options follow the command, as in" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["run"], ["doctor"], ["config", "show"]], ids=" ".join)
def test_what_is_wrong_with_a_call_is_not_lost_below_all_flags(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main([*arguments, "--sync-period"])
    usage, error = capsys.readouterr().err.splitlines()
    assert usage.startswith(f"usage: hpad {' '.join(arguments)} ")
    assert "--sync-period" in error


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    out = capsys.readouterr().out
    assert all(f"    {name} " in out for name in ("check", "convert", "version"))


def test_a_foreseen_failure_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(args: argparse.Namespace) -> int:
        raise Failure("the broker is away")

    command(monkeypatch, fails)
    assert cli.main(["version"]) == 1
    assert capsys.readouterr().err == "hpad: the broker is away\n"


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(args: argparse.Namespace) -> int:
        raise ValueError("a bug")

    command(monkeypatch, fails)
    with pytest.raises(ValueError, match="a bug"):
        cli.main(["version"])


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    command(monkeypatch, interrupted)
    assert cli.main(["version"]) == 130


FULL = "/dev/full"


@pytest.mark.skipif(not Path(FULL).exists(), reason=f"needs {FULL}, which has no room")
@pytest.mark.parametrize("arguments", [["version"], ["adapters", "describe", "prometheus"]], ids=" ".join)
def test_an_output_without_room_is_said_in_one_line(arguments: list[str]) -> None:
    with open(FULL, "w") as full:
        ended = subprocess.run([*HPAD, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "hpad: the output cannot be written: No space left on device\n")


def test_nobody_needs_to_listen() -> None:
    """As with `hpad check FILE >&-`, of which only the exit status is of interest."""
    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *HPAD, "version"], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
