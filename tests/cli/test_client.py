"""`hpad sources` with servers that use TLS and authenticate clients."""

import asyncio
import contextlib
import json
import re
import socket
import threading
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from support import http_server
from support.raw_http import RawServer

from hpad.cli import kubectl, main, program
from hpad.serve.server import Server
from hpad.settings.model import Serving


async def sources(*arguments: object) -> int:
    return await asyncio.to_thread(main, ["sources", *map(str, arguments)])


def address(server: Server) -> str:
    return server.url.partition("://")[2]


async def test_a_valid_token_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens, wrong = tmp_path / "tokens", tmp_path / "wrong"
    tokens.write_text("\none-token\nanother-token\n")
    wrong.write_text("no-token")
    async with http_server.opened(Serving(token_file=tokens)) as server:
        assert await sources("--address", address(server), "--token-file", tokens) == 0
        assert capsys.readouterr().out.startswith("NAME")
        assert await sources("--address", address(server), "--token-file", wrong) == 1
        assert await sources("--address", address(server)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("answered 401 Unauthorized: authenticate with --token-file") == 2
    assert "token\n" not in err


async def test_the_authority_of_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = trustme.CA()
    certificate, key = http_server.write_certificate(tmp_path, authority)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    async with http_server.opened(Serving(certificate=certificate, private_key=key)) as server:
        assert await sources("--address", address(server), "--cacert", tmp_path / "ca.crt") == 0
        assert await sources("--address", server.url) == 1
    assert "name its authorities with --cacert" in capsys.readouterr().err


async def test_the_environment_of_a_server_with_tls_implies_https(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = http_server.write_certificate(tmp_path, trustme.CA())
    async with http_server.opened(Serving(certificate=certificate, private_key=key)) as server:
        monkeypatch.setenv("HPAD_LISTEN", address(server))
        monkeypatch.setenv("HPAD_TLS_CERT_FILE", str(certificate))
        assert await sources() == 1
    assert f"no hpad answers on {server.url}/api/v1/sources: " in capsys.readouterr().err


async def test_a_token_does_not_follow_a_redirect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (tmp_path / "token").write_text("secret")
    assert await sources("--address", "{}:{}".format(*runner.addresses[0]), "--token-file", tmp_path / "token") == 1
    await runner.cleanup()
    assert seen == ["/api/v1/sources"]
    assert "302" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--address", "10.0.0.7:1", "--token-file", "{file}"), 2, "unencrypted: write https://10.0.0.7:1"),
        (("--address", "ftp://x:1"), 2, "'ftp://x:1' is not of the form HOST:PORT or https://HOST:PORT"),
        (("--address", "x:1x"), 2, "'x:1x' is not of the form HOST:PORT or https://HOST:PORT"),
        (("--address", "https://x y:1"), 2, "'https://x y:1' is not of the form HOST:PORT or https://HOST:PORT"),
        (("--address", "x:65536"), 2, "'x:65536' is not of the form HOST:PORT or https://HOST:PORT"),
        (("--token-file", "{file}.none"), 1, "No such file or directory"),
        (("--token-file", "{empty}"), 1, "is empty"),
        (("--token-file", "/dev/zero"), 1, "--token-file: /dev/zero: larger than 1 MiB"),
        (("--cacert", "{empty}"), 1, "has no certificate authorities"),
    ],
)
def test_unusable_arguments_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, message: str
) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "empty").write_text("")
    filled = [each.format(file=tmp_path / "token", empty=tmp_path / "empty") for each in arguments]
    assert main(["sources", *filled]) == status
    err = capsys.readouterr().err
    assert message in err
    assert "secret" not in err


def test_a_server_on_all_addresses_is_reached_by_loopback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HPAD_LISTEN", ":9")
    assert main(["sources"]) == 1
    assert capsys.readouterr().err == (
        "hpad: no hpad answers on http://127.0.0.1:9/api/v1/sources: Connection refused; "
        "HPAD_LISTEN names this address; name another --address\n"
    )


def test_an_hpad_that_does_not_listen_is_looked_for_at_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HPAD_LISTEN", "none")
    main(["sources"])
    assert "http://none" not in capsys.readouterr().err


def test_the_variable_with_a_bad_address_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HPAD_LISTEN", "x:65536")
    assert main(["sources"]) == 2
    assert capsys.readouterr().err == "hpad: HPAD_LISTEN: 'x:65536' is not of the form HOST:PORT or https://HOST:PORT\n"


async def test_a_command_without_a_config_does_not_propose_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(main, ["explain", "web", "--address", "127.0.0.1:9"]) == 1
    assert capsys.readouterr().err.endswith(": Connection refused; name another --address\n")


def test_a_server_that_does_not_use_http(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def greet() -> None:
            with server.accept()[0] as connection:
                connection.recv(1024)
                connection.sendall(b"SSH-2.0-x\r\n")

        greeter = threading.Thread(target=greet)
        greeter.start()
        assert main(["sources", "--address", f"127.0.0.1:{port}"]) == 1
        greeter.join()
    assert "did not answer with JSON: does hpad listen there?" in capsys.readouterr().err


def server_of(answer: str) -> contextlib.AbstractAsyncContextManager[RawServer]:
    """Returns a server that answers each request with this text."""
    return RawServer(f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n{answer}".encode()).serving()


async def test_an_answer_is_printed_as_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    async with server_of('{"sentence": "3 replicas", "trace": {"time": "2026-12-01T10:00:00Z"}}') as server:
        arguments = ["explain", "web", "-o", "yaml", "--address", f"127.0.0.1:{server.port}"]
        assert await asyncio.to_thread(main, arguments) == 0
    assert capsys.readouterr().out == "sentence: 3 replicas\ntrace:\n  time: '2026-12-01T10:00:00Z'\n"


async def test_an_answer_that_is_nested_too_deep_for_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    async with server_of(
        '{"sentence": "x", "trace": {"time": "2026-12-01T10:00:00Z"}, "more": ' + "[" * 500 + "]" * 500 + "}"
    ) as server:
        arguments = ["explain", "web", "-o", "yaml", "--address", f"127.0.0.1:{server.port}"]
        assert await asyncio.to_thread(main, arguments) == 1
    assert capsys.readouterr() == ("", "hpad: the answer is nested too deep to be printed as yaml\n")


NO_HPAD = "that is no hpad, or one of another version"
NO_JSON = "did not answer with JSON: does hpad listen there?"


@pytest.mark.parametrize("command", ["explain web", "explain web --last=3", "shadow-report", "sources"])
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ('{"status": "success", "data": []}', NO_HPAD),
        ('{"items": [{}]}', NO_HPAD),
        ("[]", NO_HPAD),
        ("null", NO_HPAD),
        ("5", NO_HPAD),
        ('{"items": null, "sentence": null}', NO_HPAD),
        ('{"items": 5, "sentence": 5}', NO_HPAD),
        ('{"items": ["x"]}', NO_HPAD),
        ("<html>", NO_JSON),
        ('{"items": [', NO_JSON),
        ('{"items": NaN}', NO_JSON),
        ('{"items": ' + "[" * 100_000 + "]" * 100_000 + "}", NO_JSON),
    ],
)
async def test_the_json_of_another_server_is_named_in_one_line(
    command: str, answer: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await refuses([*command.split()], answer, says, capsys)


OF_KUBECTL = ("status", "history", "version")


def kubectl_hpad(arguments: list[str]) -> int:
    return program.run("kubectl-hpad", lambda: kubectl._parse(arguments))


async def refuses(command: list[str], answer: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Asserts that a command which gets this answer ends with status 1 and one line, with the URL and the reason."""
    async with server_of(answer) as server:
        arguments = [*command, "--address", f"127.0.0.1:{server.port}"]
        assert await asyncio.to_thread(kubectl_hpad if command[0] in OF_KUBECTL else main, arguments) == 1
    err = capsys.readouterr().err
    assert re.match(rf"(kubectl-)?hpad: {server.url}[/ ]", err)
    assert err.endswith(f"{says}\n")
    assert err.count("\n") == 1


SOURCE = {"name": "a", "adapter": "b", "state": "ok", "asked": 2, "hits": 1, "latency": 0.5}
HPA = {
    **{"namespace": "shop", "name": "web", "kind": "HorizontalPodAutoscaler", "states": ["limited"]},
    **{"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "metrics": [{"address": "cpu"}]},
    **{"minReplicas": 1, "maxReplicas": 5, "currentReplicas": 2, "desiredReplicas": 2},
    "lastDecision": {"time": "2026-12-01T10:00:00Z", "sentence": "2 replicas"},
}
ENTRY = {
    **{"namespace": "shop", "name": "web", "began": "2026-12-01T10:00:00Z", "ended": "2026-12-01T10:10:00Z"},
    **{"turns": 41, "action": "none", "sentence": "2 replicas", "current": 2, "desired": 2, "min": 1, "max": 5},
}
RECORDING = {"began": ENTRY["began"], "ended": ENTRY["ended"], "decisions": 41, "scenarios": [{}]}
WRONG = [
    ("sources", SOURCE, "name", 5),
    ("sources", SOURCE, "latency", "fast"),
    ("sources", SOURCE, "hits", None),
    ("sources", SOURCE, "asked", 10**400),
    ("sources", SOURCE, "lastErrorAt", "yesterday"),
    ("sources", SOURCE, "lastErrorAt", "2026-12-01T10:00:00"),
    ("sources", SOURCE, "lastError", {}),
    ("status", HPA, "metrics", 5),
    ("status", HPA, "metrics", ["cpu"]),
    ("status", HPA, "target", "web"),
    ("status", HPA, "states", "limited"),
    ("status", HPA, "desiredReplicas", "2"),
    ("status", HPA, "lastDecision", "none"),
    ("status", HPA, "lastScaleTime", 5),
    ("status -o wide", HPA, "lastDecision", {"sentence": 5}),
    ("status web", HPA, "name", ["web"]),
    ("history web", ENTRY, "began", 5),
    ("history web", ENTRY, "turns", "many"),
    ("explain web --last=3", ENTRY, "sentence", None),
    ("shadow-report", HPA, "namespace", 5),
    ("explain web", None, "sentence", ["x"]),
    ("explain web", None, "trace", 5),
    ("explain web", None, "notes", 5),
    ("explain web", None, "trace", {"time": "2026-12-01T10:00:00Z", "metrics": 5}),
    ("explain web --at=-1m", ENTRY, "ended", "never"),
    ("explain web --save={file}", RECORDING, "began", 5),
    ("explain web --save={file}", RECORDING, "scenarios", 5),
    ("explain web --save={file}", RECORDING, "decisions", []),
    ("version", None, "version", ["x"]),
    ("version", None, "kubernetes", 5),
    ("version", None, "commit", 5),
]


@pytest.mark.parametrize(("command", "whole", "name", "value"), WRONG)
async def test_a_member_of_another_type_is_named_with_the_url(
    command: str,
    whole: dict[str, object] | None,
    name: str,
    value: object,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = whole or {"sentence": "2 replicas", "version": "0.1.0", "trace": {"time": "2026-12-01T10:00:00Z"}}
    listed = command.split()[0] in ("sources", "status", "history", "shadow-report") or "--last" in command
    changed = {**good, name: value}
    answer = json.dumps({"items": [changed]} if listed else changed)
    await refuses(command.format(file=tmp_path / "new").split(), answer, NO_HPAD, capsys)


def test_run_reports_a_port_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}], users: [{name: u, user: {}}]}"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert main(["run", "--kubeconfig", str(kubeconfig), f"--listen=127.0.0.1:{port}", "--log-level=error"]) == 2
    assert (
        f"hpad: cannot listen on 127.0.0.1:{port}: another process, perhaps another hpad, listens there; "
        "set `listen` to another port or to none\n" in capsys.readouterr().err
    )
