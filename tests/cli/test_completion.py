"""`hpad completion`: the words that it offers, and its scripts in real shells."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpad import cli
from hpad.cli import COMMANDS


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([""], [*COMMANDS]),
        ([], [*COMMANDS]),
        (["ex"], ["explain"]),
        (["--ver"], ["--version"]),
        (["sources", ""], ["test"]),
        (["sources", "-o", "json", "t"], ["test"]),
        (["config", "show", "--log-"], ["--log-format", "--log-level"]),
        (["config", "--log-"], []),
        (["explain", "web", "-o", ""], ["text", "json", "yaml"]),
        (["explain", "web", "--output", "j"], ["json"]),
        (["explain", "web", "--address", ""], []),
        (["adapters", "describe", "static", "-o", "j"], ["json"]),
        (["run", "--max-s"], ["--max-staleness"]),
        (["run", "--nonsense", "--kubeco"], ["--kubeconfig"]),
        (["completion", ""], ["bash", "zsh"]),
        (["nonsense", ""], []),
        (["check", "--sca"], ["--scale-to-zero"]),
        (["adapters", "--"], ["--help", "--output", "--version"]),
        (["check", "--", ""], []),
    ],
)
def test_words_are_offered_by_the_parsers(
    words: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["completion", "bash", "--words=" + "\n".join(words)]) == 0
    captured = capsys.readouterr()
    assert (captured.out.splitlines(), captured.err) == (expected, "")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with hpad."""
    (tmp_path / "hpad").symlink_to(Path(sys.executable).parent / "hpad")
    return f"{tmp_path}:{os.environ.get('PATH', os.defpath)}"


def shell(name: str, script: str, path: str) -> list[str]:
    """Runs a script and returns what it prints, without the files for each user."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    flags = ["--norc", "--noprofile"] if name == "bash" else ["-f"]
    ended = subprocess.run(
        [found, *flags, "-c", script], env={"PATH": path}, capture_output=True, text=True, check=False, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.split()


def test_the_script_completes_in_bash(path: str) -> None:
    script = """
        source <(hpad completion bash)
        complete -p hpad >/dev/null || exit 1
        COMP_WORDS=(hpad sources tes) COMP_CWORD=2
        _hpad hpad tes sources
        echo "${COMPREPLY[@]}"
        COMP_WORDS=(hpad adapters --) COMP_CWORD=2
        _hpad hpad -- adapters
        echo "${COMPREPLY[@]}"
        COMP_WORDS=(hpad completion "") COMP_CWORD=2
        _hpad hpad "" completion
        echo "${COMPREPLY[@]}"
    """
    assert shell("bash", script, path) == ["test", "--help", "--output", "--version", "bash", "zsh"]


def test_the_script_completes_in_zsh(path: str) -> None:
    """`compadd` works within a completion only, so a function stands in for it."""
    script = """
        compdef() { true }
        source <(hpad completion zsh)
        compadd() { print -l -- "${(@P)2}" }
        _files() { print files }
        words=(hpad sources "") CURRENT=3
        _hpad
        words=(hpad adapters --) CURRENT=3
        _hpad
        words=(hpad check "") CURRENT=3
        _hpad
    """
    assert shell("zsh", script, path) == ["test", "--help", "--output", "--version", "files"]
