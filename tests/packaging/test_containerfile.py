"""The Containerfile, read rather than built: what it starts from, what it copies, who it runs as, what it runs."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from hpad import __version__, settings


class Instruction(NamedTuple):
    name: str
    rest: str


@pytest.fixture(scope="session")
def instructions(root: Path) -> list[Instruction]:
    """In order, continued lines joined, build arguments filled in with their defaults."""
    text = re.sub(r"^#.*\n", "", (root / "Containerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    read = [Instruction(*line.split(maxsplit=1)) for line in lines]
    defaults = dict(each.rest.split("=", 1) for each in read if each.name == "ARG")
    return [each._replace(rest=re.sub(r"\$\{(\w+)\}", lambda name: defaults[name[1]], each.rest)) for each in read]


def last_stage(instructions: list[Instruction]) -> dict[str, str]:
    """The instructions of the image itself; the last of each name counts."""
    begins = max(number for number, each in enumerate(instructions) if each.name == "FROM")
    return dict(instructions[begins:])


def test_every_base_has_a_tag_that_says_which_python(instructions: list[Instruction]) -> None:
    bases = [each.rest.split()[0] for each in instructions if each.name == "FROM"]
    assert len(bases) == 2
    assert set(bases) == {"docker.io/library/python:3.11-slim"}


def test_what_is_copied_is_there(instructions: list[Instruction], root: Path) -> None:
    copied = [each.rest.split()[:-1] for each in instructions if each.name == "COPY" and "--from" not in each.rest]
    assert copied
    for path in [path for paths in copied for path in paths]:
        assert (root / path).exists(), path
    flat = {path for paths in copied for path in paths}
    assert {"pyproject.toml", "README.md", "LICENSE", "hpad", "adapters"} <= flat, "what the package is built from"


def test_it_runs_as_nobody_in_particular(instructions: list[Instruction]) -> None:
    user, group = last_stage(instructions)["USER"].split(":")
    assert int(user) > 0
    assert int(group) > 0


def test_it_runs_the_daemon(
    instructions: list[Instruction], told: Callable[[Sequence[str]], settings.Settings]
) -> None:
    stage = last_stage(instructions)
    assert json.loads(stage["ENTRYPOINT"]) == ["/opt/hpad/bin/hpad"]
    read = told(json.loads(stage["CMD"]))
    assert read.listen == ("0.0.0.0", int(stage["EXPOSE"]))


def test_it_brings_no_tools_to_build_with(instructions: list[Instruction]) -> None:
    assert "pip uninstall" in last_stage(instructions)["RUN"]
    assert not [each for each in instructions if "apt-get" in each.rest or each.name == "ADD"]


def test_the_tag_in_the_text_is_the_version(root: Path) -> None:
    found = re.findall(r"registry\.example\.com/hpad:(\S+)", (root / "Containerfile").read_text(encoding="utf-8"))
    assert found == [__version__]
