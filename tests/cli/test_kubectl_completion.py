"""Completion of `kubectl hpad` in the shell. A shell script stands in for kubectl, which lists the objects."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hpad.cli.kubectl import completion


@pytest.fixture
def complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """Returns the lines for these words; kubectl answers a list with its own arguments, one per line."""
    file = tmp_path / "kubectl"
    file.write_text('#!/bin/sh\nfor each in "$@"; do echo "$each"; done\n')
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")

    def run(*words: str) -> list[str]:
        assert completion.main(words) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return str(out).splitlines()

    return run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([""], ["explain", "status", "history", "sources", "version", ":4"]),
        (["s"], ["status", "sources", ":4"]),
        (["-n", "x", "ver"], ["version", ":4"]),
        (["sources", ""], [":4"]),
        (["status", "--all-n"], ["--all-namespaces", ":4"]),
        (["--token-"], ["--token-file", ":4"]),
        (["status", "-o", ""], ["wide", "name", "json", "yaml", ":4"]),
        (["version", "--output", "j"], ["json", ":4"]),
        (["status", "--kubeconfig", ""], [":0"]),
        (["status", "--context", ""], [":4"]),
        ([], ["explain", "status", "history", "sources", "version", ":4"]),
    ],
)
def test_commands_and_flags_are_completed(complete, words: list[str], expected: list[str]) -> None:
    assert complete(*words) == expected


def test_names_of_hpas_are_listed_in_the_chosen_cluster_and_namespace(complete) -> None:
    listed = complete("status", "--context", "x", "-n", "shop", "first", "")
    assert listed[:4] == ["--context=x", "--request-timeout=5s", "get", "horizontalpodautoscalers"]
    assert listed[-2:] == ["autoscaler/--namespace=shop", ":4"]
    assert "--namespace=shop" in complete("explain", "-n", "shop", "")
    assert complete("explain", "asr/auto") == ["asr/autoscalers.hpad.io", ":4"]
    assert complete("status", "-A", "--all-n")[-2:] == ["--all-namespaces", ":4"]
    assert complete("explain", "--at", "10m", "hor") == ["horizontalpodautoscalers", ":4"]
    assert complete("status", "-A", "hor") == ["horizontalpodautoscalers", ":4"]


def test_names_of_namespaces_are_listed(complete) -> None:
    assert complete("status", "--context=x", "-n", "n") == ["namespaces", ":4"]


def test_mistakes_and_failures_are_silent(complete, tmp_path: Path) -> None:
    assert complete("status", "--output", "nonsense", "hor") == ["horizontalpodautoscalers", ":4"]
    (tmp_path / "kubectl").write_text("#!/bin/sh\necho 'error: no' >&2\nexit 1\n")
    assert complete("status", "") == [":4"]
