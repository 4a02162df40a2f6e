"""The Containerfile, which is parsed and not built: base image, copied files, user and command."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from hpad import settings


class Instruction(NamedTuple):
    name: str
    rest: str


@pytest.fixture(scope="session")
def instructions(root: Path) -> list[Instruction]:
    """Returns the instructions in order; continued lines are joined, build arguments have their defaults."""
    text = re.sub(r"^#.*\n", "", (root / "Containerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    read = [Instruction(*line.split(maxsplit=1)) for line in lines]
    defaults = dict(each.rest.split("=", 1) for each in read if each.name == "ARG")
    return [each._replace(rest=re.sub(r"\$\{(\w+)\}", lambda name: defaults[name[1]], each.rest)) for each in read]


def last_stage(instructions: list[Instruction]) -> dict[str, str]:
    """Returns the instructions of the final stage; the last of each name counts."""
    begins = max(number for number, each in enumerate(instructions) if each.name == "FROM")
    return dict(instructions[begins:])


def test_every_base_image_has_a_tag_with_its_python_version(instructions: list[Instruction]) -> None:
    bases = [each.rest.split()[0] for each in instructions if each.name == "FROM"]
    assert len(bases) == 2
    assert set(bases) == {"docker.io/library/python:3.11-slim"}


def test_all_that_is_copied_are_wheels(instructions: list[Instruction]) -> None:
    """test_release.py runs the command that installs them."""
    assert [each.rest for each in instructions if each.name == "COPY"] == [
        "*.whl /wheels/",
        "--from=build /opt/hpad /opt/hpad",
    ]


def test_the_image_runs_as_an_unprivileged_user(instructions: list[Instruction]) -> None:
    user, group = last_stage(instructions)["USER"].split(":")
    assert int(user) > 0
    assert int(group) > 0


def test_the_image_runs_the_daemon(
    instructions: list[Instruction], parsed: Callable[[Sequence[str]], settings.Settings]
) -> None:
    stage = last_stage(instructions)
    assert json.loads(stage["ENTRYPOINT"]) == ["/opt/hpad/bin/hpad"]
    read = parsed(json.loads(stage["CMD"]))
    assert read.listen == ("0.0.0.0", int(stage["EXPOSE"]))


def test_the_image_has_no_build_tools(instructions: list[Instruction]) -> None:
    assert "pip uninstall" in last_stage(instructions)["RUN"]
    assert not [each for each in instructions if "apt-get" in each.rest or each.name == "ADD"]
