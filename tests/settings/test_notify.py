"""The section `notify` of the configuration."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import called

from hpad.api.problem import problems_of
from hpad.settings.notify import NotifyCause, notify

SLACK = {"form": "slack", "url_file": "/etc/hpad/slack"}
SECRET = "https://hooks.slack.com/services/T0/B0/s3cr3tw0rd"


def section(**fields: Any) -> dict[str, Any]:
    return {"destinations": {"ops": {**SLACK, **fields}}}


def test_destinations_with_their_filters() -> None:
    found = notify(
        {
            **section(causes=["at_max", "failing"], namespaces=["shop-*"]),
            "after": {"at_max": "1h"},
            "page": "https://hpad.example.com",
        }
    )
    (ops,) = found.destinations
    assert (ops.name, ops.url_file) == ("ops", Path("/etc/hpad/slack"))
    assert (found.after.at_max, found.after.failing) == (timedelta(hours=1), timedelta(minutes=5))
    taken = [ops.takes(cause, space) for cause in ("at_max", "rescale") for space in ("shop-eu", "default")]
    assert taken == [True, False, False, False]
    assert found.causes == {NotifyCause.AT_MAX, NotifyCause.FAILING}
    assert notify(section()).causes == set(NotifyCause)
    assert notify({}).causes == frozenset()


@pytest.mark.parametrize(
    ("value", "path", "text"),
    [
        (SECRET, "", "notify is a mapping such as {destinations: {NAME: "),
        ({"destinations": [SECRET]}, "destinations", "destinations are a mapping of a name to {form: slack"),
        ({"destinations": {"ops": SECRET}}, "destinations.ops", "a destination is a mapping such as {form: slack"),
        ({"destinations": {"Ops": SLACK}}, "destinations.Ops", "'Ops' is not the name of a destination"),
        ({"destinations": {"ops": {"url_file": "/x"}}}, "destinations.ops", "form is missing"),
        (section(form="slak"), "destinations.ops.form", "'slak' is not one of slack, cloudevents"),
        (section(causes=["at-max"]), "destinations.ops.causes", "no cause 'at-max'; did you mean 'at_max'?"),
        (section(urls="x"), "destinations.ops.urls", "unknown field 'urls'; did you mean 'url'?"),
        (section(url_file=SECRET), "destinations.ops.url_file", "not the path of a file: write the secret into a file"),
        ({"destinations": {"ops": {"form": "slack", "url": SECRET}}}, "destinations.ops.url", "is a secret: write it"),
        ({"destinations": {"ops": {"form": "cloudevents"}}}, "destinations.ops", "give one of url and url_file"),
        (section(form="cloudevents", url="https://e.example"), "destinations.ops", "give one of url and url_file"),
        (
            {"destinations": {"ops": {"form": "cloudevents", "url": "http://e.example", "token_file": "/t"}}},
            "destinations.ops.token_file",
            "a token is sent over https:// only",
        ),
        (
            {"destinations": {"ops": {"form": "cloudevents", "url": "https://me:s3cr3tw0rd@e.example"}}},
            "destinations.ops.url",
            "the value contains credentials: use token_file, or url_file",
        ),
        ({"page": "hpad.example.com/s3cr3tw0rd"}, "page", "the value is not of the form https://HOST/PATH"),
        ({"after": {"at_max": 15}}, "after.at_max", '15 has no unit: write "15s" for seconds'),
        ({"after": {"rescale": "1m"}}, "after.rescale", "unknown field 'rescale'"),
    ],
)
def test_mistakes_name_the_field_and_what_would_be_right_and_no_secret(value: Any, path: str, text: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        notify(value)
    (problem,) = problems_of(error.value)
    assert problem.path == path
    assert text in problem.text
    assert "s3cr3tw0rd" not in str(error.value)


def test_commands_check_the_section_and_show_no_address(tmp_path: Path) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text(yaml.safe_dump({"notify": section(causes=["at-max"])}))
    status, out, err = called("check", str(file))
    assert status != 0
    assert "notify: destinations: ops: causes: there is no cause 'at-max'; did you mean 'at_max'?" in out + err
    events = {"form": "cloudevents", "url": "https://events.example.com/hooks/s3cr3tw0rd?key=s3cr3tw0rd"}
    file.write_text(yaml.safe_dump({"notify": {"destinations": {"audit": events}}}))
    for form in ("text", "json"):
        status, out, err = called("config", "show", "--config", str(file), "-o", form)
        assert (status, err) == (0, "")
        assert "https://events.example.com" in out
        assert "s3cr3tw0rd" not in out
