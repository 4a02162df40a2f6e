"""The command line as a whole."""

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.replays import scenario, step

import hpad
from hpad import cli
from hpad.cli.output import Failure

HPAD = (sys.executable, "-m", "hpad")


def command(monkeypatch: pytest.MonkeyPatch, run: Callable[[argparse.Namespace], int]) -> None:
    """Replaces the command `version`."""

    monkeypatch.setattr("hpad.cli.version.run", run)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"hpad {hpad.__version__}\n")
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"hpad {hpad.__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["check"], ["check", "-o", "xml", "x"]])
def test_wrong_use_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    refused, hint = capsys.readouterr().err.splitlines()
    assert refused.startswith("hpad")
    assert hint.endswith("--help` lists all arguments.")


@pytest.mark.parametrize(
    ("option", "hint"), [("--sync-periood=5s", "; did you mean '--sync-period'?"), ("--nonsense", "")]
)
def test_an_unknown_option_gets_a_suggestion(option: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", option])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"hpad run: unknown: {option}{hint}\n`hpad run --help-all` lists all arguments.\n"


def test_no_option_is_suggested_for_its_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    """--report has as much in common with --memory as its dashes and three letters."""
    with pytest.raises(SystemExit):
        cli.main(["simulate", "web.yaml", "--load=constant:1", "--report", "a.html"])
    assert "did you mean" not in capsys.readouterr().err


PREFIX = "--horizontal-pod-autoscaler-"


@pytest.mark.parametrize(
    ("name", "removed", "instead"),
    [
        ("upscale-delay", "removed in Kubernetes 1.31", "spec.behavior.scaleUp"),
        ("downscale-delay", "removed in Kubernetes 1.31", f"write {PREFIX}downscale-stabilization"),
    ],
)
@pytest.mark.parametrize("form", [lambda flag: [f"{flag}=3m0s"], lambda flag: [flag, "3m0s"]], ids=["one", "two"])
def test_a_removed_flag_of_kubernetes_is_refused_with_version_and_replacement(
    name: str,
    removed: str,
    instead: str,
    form: Callable[[str], list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    flag = PREFIX + name
    for command in (["run"], ["doctor"], ["config", "show"]):
        with pytest.raises(SystemExit) as ended:
            cli.main([*command, *form(flag)])
        assert ended.value.code == 2
        line, last = capsys.readouterr().err.splitlines()
        assert line.startswith(f"hpad {' '.join(command)}: {flag} ")
        assert removed in line
        assert instead in line
        assert "unknown" not in line
        assert last == f"`hpad {' '.join(command)} --help-all` lists all arguments."


def test_each_removed_flag_is_reported_before_unknown_ones(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [f"{PREFIX}upscale-delay", "3m", "--nonsense", "x", "--sync-tick=5s", "--sync-periood=5s"]
    with pytest.raises(SystemExit):
        cli.main(["run", *arguments])
    *lines, _ = capsys.readouterr().err.splitlines()
    assert [line.split()[2] for line in lines] == [arguments[0], "--sync-tick"]


@pytest.mark.parametrize(
    ("gate", "text"),
    [
        ("HPAContainerMetrics", "is always on since Kubernetes 1.30, and was removed with 1.32: leave it out"),
        ("HPAZeroTakenOver", "was removed, since no API server records who has set a scale of 0: leave it out"),
    ],
)
def test_a_feature_gate_that_was_removed_is_refused(gate: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", f"--feature-gates={gate}=true"]) == 2
    assert f"{gate} {text}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["exlain"], "did you mean 'explain'?"),
        (["docter", "--dry-run"], "did you mean 'doctor'?"),
        (["sources", "tset"], "did you mean 'test'?"),
        (["config", "shwo"], "did you mean 'show'?"),
        (["adapters", "descibe", "static"], "did you mean 'describe'?"),
        (["explain", "web", "-o", "jsn"], "did you mean 'json'?"),
        (["config", "show", "--listne"], "did you mean '--listen'?"),
        (["zzz"], "'zzz' is none of run, demo"),
    ],
)
def test_a_misspelt_word_of_the_command_line_gets_a_suggestion(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-v", "-V", "--verbose", "-o", "--config", "--set", "--nonsense"])
def test_advice_on_an_option_before_the_command_names_a_command_that_has_it(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([option])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    advised = re.search(r"as in `hpad (\S+) ", error)
    if advised is None:
        assert f"unknown: {option}\n`hpad --help`" in error
        return
    with pytest.raises(SystemExit):
        cli.main([advised[1], "--help"])
    assert re.search(rf"(^|[ ,]){option}\b", capsys.readouterr().out)


@pytest.mark.parametrize("arguments", [[], *([name] for name in cli.COMMANDS)], ids=" ".join)
def test_help_begins_with_the_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    listed = re.search(r"^(options|positional arguments|commands|actions):$", out, re.MULTILINE)
    assert listed is not None
    assert "examples:" not in out[listed.start() :]


def test_rare_settings_are_in_the_whole_help_only(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as ended:
            cli.main(["run", flag])
        assert ended.value.code == 0
        shown.append(capsys.readouterr().out)
    short, whole = shown
    assert "`hpad run --help-all` lists all arguments." in short
    assert len(short.splitlines()) < 80
    assert "--kubeconfig" in short
    for rare in ("--max-staleness", "--tls-cert-file", "--tolerance", "--leader-elect-lease-duration"):
        assert rare in whole
        assert rare not in short


def test_an_option_before_the_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--kubeconfig", "x", "run"])
    assert ended.value.code == 2
    assert "--kubeconfig comes too early: options follow the command, as in" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["run"], ["doctor"], ["config", "show"]], ids=" ".join)
def test_an_error_is_not_hidden_by_a_long_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([*arguments, "--sync-period"])
    error, hint = capsys.readouterr().err.splitlines()
    program = f"hpad {' '.join(arguments)}"
    assert error.startswith(f"{program}: argument --sync-period")
    assert hint == f"`{program} --help-all` lists all arguments."


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    out = capsys.readouterr().out
    assert all(f"    {name} " in out for name in ("check", "convert", "version"))


def test_a_failure_prints_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(args: argparse.Namespace) -> int:
        raise Failure("the broker is away")

    command(monkeypatch, fails)
    assert cli.main(["version"]) == 1
    assert capsys.readouterr().err == "hpad: the broker is away\n"


def test_an_unexpected_exception_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(args: argparse.Namespace) -> int:
        raise ValueError("a bug")

    command(monkeypatch, fails)
    with pytest.raises(ValueError, match="a bug"):
        cli.main(["version"])


_INTERRUPTED_IMPORT = """
import importlib.metadata, os, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "hpad.cli.output":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.exit(importlib.metadata.EntryPoint("x", sys.argv[1], "console_scripts").load()())
"""


@pytest.mark.parametrize("program", ["hpad", "kubectl-hpad", "kubectl_complete-hpad"])
def test_an_interrupt_while_modules_are_imported_ends_without_a_traceback(program: str) -> None:
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    command = [sys.executable, "-c", _INTERRUPTED_IMPORT, scripts[program]]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    command(monkeypatch, interrupted)
    assert cli.main(["version"]) == 130


FULL = "/dev/full"


@pytest.mark.skipif(not Path(FULL).exists(), reason=f"needs {FULL}, which has no room")
@pytest.mark.parametrize("arguments", [["version"], ["adapters", "describe", "prometheus"]], ids=" ".join)
def test_a_full_disk_under_the_output_prints_one_line(arguments: list[str]) -> None:
    with open(FULL, "w") as full:
        ended = subprocess.run([*HPAD, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "hpad: the output cannot be written: No space left on device\n")


def test_a_limit_of_the_size_of_files_prints_one_line(tmp_path: Path) -> None:
    called = ["sh", "-c", 'ulimit -f 0 && exec "$@" >out', "sh", *HPAD, "version"]
    ended = subprocess.run(called, cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "hpad: the output cannot be written: File too large\n")


@pytest.mark.parametrize(
    ("closed", "arguments", "expected"),
    [
        (">&-", ["adapters"], (0, "", "")),
        ("2>&-", ["replay", "absent"], (2, "", "")),
        ("<&-", ["check", "-"], (1, "<stdin>:1: has no document: it is empty, or a list without items\n", "")),
    ],
)
def test_standard_streams_may_be_closed(closed: str, arguments: list[str], expected: tuple[int, str, str]) -> None:
    """As in `hpad check FILE >&-`, where only the exit status is used."""
    called = ["sh", "-c", f'exec "$@" {closed}', "sh", *HPAD, *arguments]
    ended = subprocess.run(called, capture_output=True, text=True, check=False)
    out = ended.stdout.removesuffix("1 document checked, 1 with errors\n")
    assert (ended.returncode, out, ended.stderr) == expected


def test_output_is_utf_8_in_any_locale() -> None:
    """A locale with another encoding has no characters for graphs, and kubectl reads manifests as UTF-8."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    called = [*HPAD, "adapters", "describe", "rabbitmq"]
    ended = subprocess.run(called, capture_output=True, env=environment, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert not ended.stdout.decode("utf-8").isascii()


def test_input_is_utf_8_in_any_locale() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    recorded = json.dumps(scenario(step(0), id="prüfung"), ensure_ascii=False).encode()
    ended = subprocess.run([*HPAD, "replay", "-"], input=recorded, capture_output=True, env=environment, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert json.loads(ended.stdout)["id"] == "prüfung"


def test_an_argument_that_is_not_utf_8_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", "a\udcff.yaml"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("hpad: argument 'a�.yaml' is not UTF-8\n")
