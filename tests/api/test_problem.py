"""Paths of problems: written as Kubernetes does, and read again."""

import pytest

from hpad.api.problem import Place, Problem, path_of, steps


@pytest.mark.parametrize(
    ("place", "path"),
    [
        (("spec", "metrics", 0, "type"), "spec.metrics[0].type"),
        (("sources", "my.source", "timeout"), "sources[my.source].timeout"),
        (("metadata", "annotations", "hpad.io/mode"), "metadata.annotations[hpad.io/mode]"),
        (("queues", "a]b", "c"), "queues[a]b].c"),
        (("queues", "a[0]"), "queues[a[0]]"),
        (("queues", "a\nb", 3), "queues.a\nb[3]"),
        (("queues", ""), "queues[]"),
    ],
)
def test_the_steps_of_a_path_are_those_of_its_place(place: Place, path: str) -> None:
    assert path_of(place) == path
    assert steps(path) == tuple(map(str, place))


def test_a_problem_that_quotes_several_lines_is_one_line() -> None:
    assert Problem("a", 'a: "x\ny"', 3).at("web.yaml") == 'web.yaml:3: a: "x\\ny"'
