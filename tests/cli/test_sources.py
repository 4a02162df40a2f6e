"""`hpad sources` and `hpad sources test`."""

import asyncio
import http.server
import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import free_ports

from hpad.adapter import ExternalSample
from hpad.cli import client, main, output
from hpad.cli import sources as cli_sources
from hpad.clock import SystemClock
from hpad_adapters import static

ROWS = [
    {
        "name": "broker",
        "adapter": "rabbitmq",
        "state": "ok",
        "lastError": None,
        "latency": 0.012,
        "asked": 4,
        "hits": 3,
    },
    {
        "name": "prom",
        "adapter": "prometheus",
        "state": "open",
        "lastError": "it is down",
        "lastErrorAt": (datetime.now(UTC) - timedelta(days=4, hours=12)).isoformat(),
        "latency": None,
        "asked": 0,
    },
]


@pytest.fixture
def daemon() -> Iterator[str]:
    """A server that answers like a running hpad; yields its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/api/v1/sources"
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"items": ROWS}).encode())

        def log_message(self, *args: Any) -> None:
            """Nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def configured(folder: Path, text: str) -> str:
    file = folder / "hpad.yaml"
    file.write_text(text)
    return str(file)


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    """A configuration with a source of numbers from a file."""
    (tmp_path / "numbers.yaml").write_text("depth: 7\n")
    return configured(tmp_path, f"sources:\n  mine: {{adapter: static, file: {tmp_path / 'numbers.yaml'}}}\n")


def test_the_sources_of_a_running_hpad(daemon, capsys):
    assert main(["sources", "--address", daemon]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["NAME", "ADAPTER", "STATE", "LATENCY", "HIT-RATE", "ERROR-AGE", "LAST-ERROR"],
        ["broker", "rabbitmq", "ok", "12ms", "75%", "-", "-"],
        ["prom", "prometheus", "open", "-", "-", "4d", "it", "is", "down"],
    ]


def test_json_is_the_answer_of_the_daemon(daemon, monkeypatch, capsys):
    monkeypatch.setenv("HPAD_LISTEN", daemon)
    main(["sources", "-o", "json"])
    assert json.loads(capsys.readouterr().out) == ROWS


def test_without_a_running_hpad_one_line_is_printed(capsys):
    with free_ports.port() as port:
        assert main(["sources", "--address", f"127.0.0.1:{port}"]) == 1
    assert "no hpad answers on" in capsys.readouterr().err


@pytest.mark.parametrize("selector", [[], ["--selector", ""]], ids=["none", "empty"])
def test_a_metric_is_shown_as_an_hpa_would_see_it(numbers, capsys, selector):
    assert main(["sources", "test", "--config", numbers, "mine", "depth", *selector]) == 0
    shown = capsys.readouterr().out
    assert 'External "depth" in namespace "default"' in shown
    assert "an HPA:     sees 7" in shown
    assert re.search(r"^timestamp:  \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ \(0\.\ds ago\)$", shown, re.M)


@pytest.mark.parametrize(("seconds", "said"), [(-200, "(200.0s ahead)"), (200, "(200.0s ago)")])
def test_the_age_of_a_sample_is_never_negative(numbers, capsys, monkeypatch, seconds, said):
    """A source whose clock is ahead dates its samples ahead. The note is shown as well."""
    now = SystemClock().now()
    sample = ExternalSample((7000,), now - timedelta(seconds=seconds), "no consumer takes any")
    monkeypatch.setattr(static.Static, "answer", lambda self, queries: asyncio.sleep(0, [sample]))
    monkeypatch.setattr(cli_sources, "SystemClock", lambda: SimpleNamespace(now=lambda: now))
    assert main(["sources", "test", "--config", numbers, "mine", "depth"]) == 0
    shown = capsys.readouterr().out
    assert said in shown
    assert "note:       no consumer takes any" in shown


def test_an_error_is_shown_with_its_blame(numbers, capsys):
    assert main(["sources", "test", "--config", numbers, "mine", "width", "-n", "shop", "--selector", "a=b"]) == 1
    shown = capsys.readouterr().out
    assert 'External "width" with a=b in namespace "shop"' in shown
    assert "blame:      spec" in shown


def test_an_adapter_that_fails_to_close_does_not_change_the_answer(numbers, capsys, monkeypatch):
    async def fail(self):
        raise RuntimeError("cannot close")

    monkeypatch.setattr(static.Static, "aclose", fail)
    assert main(["sources", "test", "--config", numbers, "mine", "depth"]) == 0
    out, log = capsys.readouterr()
    assert "an HPA:     sees 7" in out
    assert "the adapter failed to close" in log
    assert "cannot close" not in log  # the text of an exception may hold a secret


def test_a_query_may_depend_on_the_hpa(tmp_path, capsys):
    query = 'x{a="<<.HPALabels.team>>",b="<<.Target>>"}'
    metrics = {"depth": {"query": query}}
    prom = {"adapter": "prometheus", "url": "http://127.0.0.1:9", "metrics": metrics}
    path = configured(tmp_path, json.dumps({"sources": {"prom": prom}}))
    command = ["sources", "test", "--config", path, "prom", "depth"]
    assert main(command) == 1
    assert "it needs an HPA" in capsys.readouterr().out
    assert main([*command, "--hpa", "web", "--hpa-labels", "tier=front", "--target", "Deployment/web"]) == 1
    assert 'the label "team" of the HPA, which HPA "web" does not have' in capsys.readouterr().out
    assert main([*command, "--hpa", "web", "--hpa-labels", "tier=front,team=a", "--target", "Deployment/web"]) == 1
    assert "blame:      source" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["other", "depth"], 1, "there is no source 'other'; there are mine, metrics-server"),
        (["mine", "depth", "--selector", "a in"], 2, "hpad: --selector: unable to parse"),
        (["mine", "depth", "--target", "Deployment/web"], 2, "name it with --hpa NAME"),
        (["mine", "depth", "--hpa", "web", "--target", "web"], 2, "--target: 'web' is not of the form KIND/NAME"),
        (["mine", "depth", "--type", "Object"], 2, "name it with --object KIND/NAME"),
        (["mine", "depth", "--type", "Object", "--object", "web"], 2, "not of the form KIND/NAME"),
    ],
)
def test_invalid_arguments(arguments, status, message, numbers, capsys):
    assert main(["sources", "test", "--config", numbers, *arguments]) == status
    assert message in capsys.readouterr().err


def test_a_flag_before_the_action_counts(numbers, capsys):
    """argparse puts the defaults of a subcommand over what stands before it."""
    assert main(["sources", "-o", "json", "test", "--config", numbers, "mine", "depth"]) == 0
    assert json.loads(capsys.readouterr().out)["metric"] == "depth"


def test_without_configured_sources_the_message_says_where_to_configure_them(capsys):
    assert main(["sources", "test", "mine", "depth"]) == 1
    message = (
        "there is no source 'mine'; no sources are configured: name a file with --config, or set HPAD_RABBITMQ_URL"
    )
    assert message in capsys.readouterr().err


RABBIT = "adapter: rabbitmq, url: 'http://127.0.0.1:9'"


@pytest.mark.parametrize(
    ("sources", "arguments", "message"),
    [
        (
            f"mq: {{{RABBIT}}}",
            ["mq", "queue_mesages", "--selector", "queue=orders"],
            'source "mq" answers no External metric "queue_mesages" (did you mean "queue_messages"?); '
            "it answers queue_messages, queue_messages_ready, queue_messages_unacknowledged",
        ),
        (
            f"mq: {{{RABBIT}, match: {{metrics: [orders_waiting, mail_*]}}}}",
            ["mq", "queue_messages", "--selector", "queue=orders"],
            'source "mq" answers no External metric "queue_messages"; it answers orders_waiting, mail_*',
        ),
        (
            f"a: {{{RABBIT}}}, b: {{{RABBIT}}}",
            ["b", "queue_messages", "--selector", "queue=orders"],
            'an HPA that names External metric "queue_messages" gets it from source "a", which comes before "b" in '
            "`routes` or `sources`: hpad sources test a queue_messages",
        ),
        (
            f"a: {{{RABBIT}}}, b: {{adapter: redis, url: 'redis://127.0.0.1:9'}}",
            ["b", "queue_messages"],
            'source "b" answers no External metric "queue_messages"; it answers redis_list_length, '
            "redis_stream_length, redis_stream_pending, redis_stream_lag, redis_set_size, redis_sorted_set_size, "
            'redis_hash_size; an HPA that names it gets it from source "a"',
        ),
        (
            f"mq: {{{RABBIT}, namespaces: [shop]}}",
            ["mq", "queue_messages"],
            'source "mq" is not offered to HPAs of namespace "default"',
        ),
        (
            f"mq: {{{RABBIT}}}",
            ["mq", "queue_messages", "--type", "Pods"],
            'source "mq" answers no Pods metric "queue_messages"; it answers External: queue_messages, ',
        ),
        (
            "prom: {adapter: prometheus, urll: x}",
            ["prom", "depth"],
            'source "prom" (adapter "prometheus"): urll: unknown',
        ),
        (
            f"orders-mq: {{{RABBIT}}}",
            ["order-mq", "queue_messages"],
            "there is no source 'order-mq' (did you mean \"orders-mq\"?); there are orders-mq, metrics-server",
        ),
    ],
)
def test_a_metric_that_hpas_would_not_read_from_the_source_is_refused(sources, arguments, message, tmp_path, capsys):
    path = configured(tmp_path, f"sources: {{{sources}}}\n")
    assert main(["sources", "test", "--config", path, *arguments]) == 1
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


def test_routes_apply(tmp_path, numbers, capsys):
    text = Path(numbers).read_text() + "routes: [{match: {metrics: [queue_messages]}, source: mine}]\n"
    path = configured(tmp_path, text.replace("sources:\n", f"sources:\n  mq: {{{RABBIT}}}\n"))
    assert main(["sources", "test", "--config", path, "mq", "queue_messages", "--selector", "queue=a"]) == 1
    assert 'gets it from source "mine"' in capsys.readouterr().err
    (tmp_path / "numbers.yaml").write_text("queue_messages: 3\n")
    assert main(["sources", "test", "--config", path, "mine", "queue_messages"]) == 0
    assert "an HPA:     sees 3" in capsys.readouterr().out


def test_an_unknown_metric_gets_a_suggestion(numbers, capsys):
    assert main(["sources", "test", "--config", numbers, "mine", "dept"]) == 1
    assert 'holds no "dept" (did you mean "depth"?); it holds depth' in capsys.readouterr().out


def test_json_of_a_metric(numbers, capsys):
    assert main(["sources", "test", "-o", "json", "--config", numbers, "mine", "depth", "--selector", "a=b"]) == 0
    found = json.loads(capsys.readouterr().out)
    found.pop("seconds")
    found.pop("timestamp")
    named = {"source": "mine", "adapter": "static", "type": "External", "metric": "depth", "namespace": "default"}
    assert found == {**named, "selector": "a=b", "query": None, "value": "7", "values": ["7"]}
    assert main(["sources", "test", "-o", "json", "--config", numbers, "mine", "dept"]) == 1
    assert json.loads(capsys.readouterr().out)["blame"] == "spec"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "0s"), (8.9, "8s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172_800, "2d")],
)
def test_ages_have_the_form_of_kubectl(seconds, shown):
    assert output.age(seconds) == shown


def test_a_long_error_is_wrapped_on_a_terminal_only(daemon, capsys, monkeypatch):
    error = " ".join(f"word{number}" for number in range(60))
    long = [{**ROWS[1], "lastError": error}]
    monkeypatch.setattr(client.Direct, "get", lambda self, path: {"items": long})
    assert main(["sources"]) == 1
    assert error in capsys.readouterr().out
    for width in (40, 80, 200):
        monkeypatch.setattr(output, "width", lambda width=width: width)
        assert main(["sources"]) == 1
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines()[1:])) <= width
        assert error in " ".join(shown.split())
