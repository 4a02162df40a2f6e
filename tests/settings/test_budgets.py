"""The section `budgets` of the configuration."""

import re
from typing import Any

import pytest

from hpad.api.problem import problems_of
from hpad.settings.hpas import budgets


def test_amounts() -> None:
    found = budgets(
        {"gpu": {"replicas": 200}, "batch": {"cores": "1500m", "namespaces": ["team-*"]}, "c": {"cores": 0.5}}
    )
    assert [(each.name, each.amount, each.unit) for each in found] == [
        ("gpu", 200_000, "replicas"),
        ("batch", 1500, "cores"),
        ("c", 500, "cores"),
    ]
    assert [found[1].is_for(namespace) for namespace in ("team-a", "default")] == [True, False]
    assert found[0].is_for("default")


@pytest.mark.parametrize(
    ("value", "path", "text"),
    [
        ([], "", "budgets are a mapping of a name to {replicas: 200} or {cores: 50}"),
        ({"gpu": {}}, "gpu", "a budget has either replicas or cores: {replicas: 200} or {cores: 50}"),
        ({"gpu": {"replicas": 1, "cores": 1}}, "gpu", "a budget has either replicas or cores"),
        ({"gpu": {"replicas": 0}}, "gpu.replicas", "0 is not a whole number of 1 or more"),
        (
            {"gpu": {"cores": "many"}},
            "gpu.cores",
            "'many' is not a number of CPU cores above 0, such as 50, 1.5 or 1500m",
        ),
        ({"gpu": {"cores": 0}}, "gpu.cores", "0 is not a number of CPU cores above 0"),
        ({"gpu": {"replica": 4}}, "gpu.replica", "unknown field 'replica'; did you mean 'replicas'?"),
        ({"GPU": {"replicas": 4}}, "GPU", "'GPU' is not the name of a budget"),
        (
            {"gpu": {"replicas": 4, "namespaces": ["[ab]-*", "team-["]}},
            "gpu.namespaces",
            "'team-[' is no pattern: its [ is not closed",
        ),
        ({"gpu": 200}, "gpu", "200 is not a mapping of replicas, cores, namespaces"),
    ],
)
def test_mistakes_name_the_field_and_what_would_be_right(value: Any, path: str, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)) as error:
        budgets(value)
    (problem,) = problems_of(error.value)
    assert problem.path == path
