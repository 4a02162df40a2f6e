"""Credentials of a kubeconfig: tokens, passwords, exec plugins."""

import asyncio
import base64
import dataclasses
import json
import os
import ssl
import stat
import sys
import textwrap

import pytest
import structlog.testing
import trustme
from support.kubeconfigs import PATH, SECRET, encoded, kubeconfig, load, refused, sent
from support.scripted_server import Script, says, serving

from hpad.kube.client import Client

pytestmark = pytest.mark.usefixtures("home")


async def test_a_token_of_the_kubeconfig_is_sent(tmp_path, clock):
    path = kubeconfig(tmp_path / "k", user={"token": SECRET}, context={"namespace": "team"})
    loaded = await load(path)
    assert (loaded.server, loaded.namespace, loaded.ssl) == ("http://127.0.0.1:1", "team", None)
    assert loaded.source == f"{path}, context x"
    assert await sent(loaded, clock) == {"Authorization": f"Bearer {SECRET}"}
    assert SECRET not in repr(loaded)


async def test_a_user_and_a_password_are_sent(tmp_path, clock):
    loaded = await load(kubeconfig(tmp_path / "k", user={"username": "a", "password": "b"}))
    assert await sent(loaded, clock) == {"Authorization": "Basic " + base64.b64encode(b"a:b").decode()}


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", "https://127.0.0.1:1"])
async def test_requests_without_a_user_are_anonymous(tmp_path, clock, server):
    for more in ({"users": None}, {"users": []}, {}):
        loaded = await load(kubeconfig(tmp_path / "k", server=server, context={"user": ""}, **more))
        assert await sent(loaded, clock) == {}


async def test_a_token_file_is_read_again(tmp_path, clock):
    (tmp_path / "token").write_text("one\n")
    loaded = await load(kubeconfig(tmp_path / "k", user={"tokenFile": "token"}))
    assert await sent(loaded, clock) == {"Authorization": "Bearer one"}
    (tmp_path / "token").write_text("two\n")
    assert await sent(loaded, clock) == {"Authorization": "Bearer one"}
    clock.skipped += 61
    assert await sent(loaded, clock) == {"Authorization": "Bearer two"}


def plugin(path, body):
    path.write_text(f"#!{sys.executable}\n" + textwrap.dedent(body))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}}


COUNTING = """
    import json, pathlib
    count = pathlib.Path(__file__).with_suffix(".count")
    number = int(count.read_text()) + 1 if count.exists() else 1
    count.write_text(str(number))
    if number == FAILING:
        raise SystemExit("no luck")
    status = {"token": f"token-{number}", "expirationTimestamp": EXPIRES}
    print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


async def test_a_plugin_runs_again_before_its_token_expires_and_after_a_failure(tmp_path, clock):
    body = COUNTING.replace("FAILING", "2").replace("EXPIRES", repr("2026-01-01T01:00:00Z"))
    loaded = await load(kubeconfig(tmp_path / "k", user=plugin(tmp_path / "login", body)))
    seen = []
    for moment in (0, 3_000, 3_539, 3_549, 3_579):
        clock.skipped += moment - clock.monotonic()  # seconds after midnight of that day, however long a plugin took
        seen.append((await sent(loaded, clock))["Authorization"])
    assert seen == ["Bearer token-1"] * 4 + ["Bearer token-3"]


async def test_a_refused_token_makes_the_plugin_run_again(tmp_path, clock):
    body = COUNTING.replace("FAILING", "0").replace("EXPIRES", repr("2126-01-01T00:00:00Z"))
    script = Script()

    async def guarded(request):
        return await says(b"in", 200 if request.headers["Authorization"] == "Bearer token-2" else 401)(request)

    script.on("GET", PATH, guarded)
    async with serving(script.handle) as port:
        user = plugin(tmp_path / "login", body)
        loaded = await load(kubeconfig(tmp_path / "k", server=f"http://127.0.0.1:{port}", user=user))
        async with Client(loaded, clock) as client:
            assert await client.request("GET", PATH) == b"in"


PRINTING = """
    import json
    head = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    print(json.dumps({**head, "status": STATUS}))
"""


async def test_a_plugin_receives_the_cluster_if_provide_cluster_info_is_set(tmp_path, clock):
    """The file of the certificate authority and the plugin are in the folder of the kubeconfig."""
    (tmp_path / "ca.crt").write_text("an authority")
    body = PRINTING.replace("STATUS", "{'token': __import__('os').environ['KUBERNETES_EXEC_INFO'].encode().hex()}")
    user = plugin(tmp_path / "login", body)
    user["exec"] |= {"command": "./login", "provideClusterInfo": True, "env": [{"name": "A", "value": "b"}]}
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    cluster = {"certificate-authority": "ca.crt", "tls-server-name": "api", "extensions": [extension]}
    loaded = await load(kubeconfig(tmp_path / "k", user=user, cluster=cluster))
    info = json.loads(bytes.fromhex((await sent(loaded, clock))["Authorization"].removeprefix("Bearer ")))
    assert info == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "http://127.0.0.1:1",
                "tls-server-name": "api",
                "certificate-authority-data": base64.b64encode(b"an authority").decode(),
                "config": {"audience": "x"},
            },
        },
    }


async def test_certificates_of_a_plugin_are_renewed_before_they_expire(tmp_path, authority, clock):
    """The server accepts certificates of one authority at first, and only those of another one later."""
    other = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(server)
    status_file = tmp_path / "status.json"

    def issue(certificate, expires):
        status = {
            "clientCertificateData": certificate.cert_chain_pems[0].bytes().decode(),
            "clientKeyData": certificate.private_key_pem.bytes().decode(),
            "expirationTimestamp": expires,
        }
        status_file.write_text(json.dumps(status))

    body = PRINTING.replace("STATUS", f"json.load(open({str(status_file)!r}))")
    trust = {"certificate-authority-data": encoded(authority.cert_pem)}
    script = Script()
    script.on("GET", PATH, says(b"known"))
    await asyncio.to_thread(issue, authority.issue_cert("a@example.org"), "2026-01-01T01:00:00Z")
    clock.skipped -= asyncio.get_running_loop().time()  # midnight of that day
    async with serving(script.handle, tls=server) as port:
        url, user = f"https://127.0.0.1:{port}", plugin(tmp_path / "login", body)
        loaded = await load(kubeconfig(tmp_path / "k", server=url, user=user, cluster=trust))
        async with Client(loaded, clock) as client:
            assert await client.request("GET", PATH) == b"known"
    await asyncio.to_thread(issue, other.issue_cert("b@example.org"), "2026-01-01T02:00:00Z")
    later = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    later.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("127.0.0.1").configure_cert(later)
    other.configure_trust(later)
    async with serving(script.handle, tls=later) as port:
        moved = dataclasses.replace(loaded, server=f"https://127.0.0.1:{port}")
        clock.skipped += 3545  # less than a minute before the first one ends
        async with Client(moved, clock) as client:
            assert await client.request("GET", PATH) == b"known"


def test_an_interactive_plugin_is_refused(tmp_path):
    user = plugin(tmp_path / "login", PRINTING)
    user["exec"]["interactiveMode"] = "Always"
    assert "interactiveMode: Always" in refused(kubeconfig(tmp_path / "k", user=user))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise SystemExit('please log in')", "please log in"),
        ("raise SystemExit(3)", "failed (3): no message"),
        ("print('what?')", "did not print an ExecCredential"),
        ("print('{}')", "did not print an ExecCredential"),
        (PRINTING.replace("STATUS", "{}"), "neither a token nor a client certificate"),
        (PRINTING.replace("STATUS", repr({"clientCertificateData": "x"})), "without a key"),
        (PRINTING.replace("STATUS", repr({"token": "x"})).replace("/v1", "/v1beta1"), "instead of"),
    ],
)
def test_an_error_names_the_failure_of_a_plugin(tmp_path, body, problem):
    path = kubeconfig(tmp_path / "k", user=plugin(tmp_path / "login", body))
    message = refused(path)
    assert problem in message
    assert f"{path}, context 'x'" in message


def test_an_error_names_a_missing_plugin(tmp_path):
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(tmp_path / "none")}}
    assert "No such file" in refused(kubeconfig(tmp_path / "k", user=user))


@pytest.mark.parametrize("name", ["oidc", "gcp"])
def test_an_auth_provider_is_refused_with_the_plugin_to_use(tmp_path, name):
    """The message names the file of the user, also if it is not the first file."""
    first = kubeconfig(tmp_path / "one", users=[])
    user = {"auth-provider": {"name": name, "config": {"id-token": SECRET, "refresh-token": SECRET}}}
    second = kubeconfig(tmp_path / "two", user=user)
    for files in ((second,), (first, second)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", os.pathsep.join(files))
            assert refused() == (
                f"{second}: the user 'u' has the auth-provider '{name}', which hpad does not support; "
                "use an exec plugin instead, such as kubectl oidc-login for OpenID Connect"
            )


async def test_relative_paths_start_at_the_kubeconfig_that_contains_them(tmp_path, monkeypatch, clock):
    """Also if several files are merged. Source: client-go, clientcmd/loader.go: ResolveLocalPaths."""
    cluster = kubeconfig(tmp_path / "clusters" / "k", users=[])
    user = kubeconfig(tmp_path / "users" / "k", user={"tokenFile": "token"})
    (tmp_path / "users" / "token").write_text("one")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([cluster, user]))
    assert await sent(await load(), clock) == {"Authorization": "Bearer one"}


@pytest.mark.parametrize("name", ["as", "as-uid", "as-groups"])
def test_impersonation_is_refused_with_the_name_of_the_field(tmp_path, name):
    path = kubeconfig(tmp_path / "k", user={"token": SECRET, name: "root"})
    assert f"impersonation ({name}:)" in refused(path)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://api.internal", {"Authorization": f"Bearer {SECRET}"}),
        ("http://127.0.0.1:8001", {"Authorization": f"Bearer {SECRET}"}),
        ("http://localhost:8001", {"Authorization": f"Bearer {SECRET}"}),
        ("http://[::1]:8001", {"Authorization": f"Bearer {SECRET}"}),
        ("http://api.internal:8080", {}),
        ("http://10.0.0.1", {}),
    ],
)
async def test_a_token_is_sent_without_tls_to_this_machine_only(tmp_path, clock, server, expected):
    with structlog.testing.capture_logs() as logs:
        loaded = await load(kubeconfig(tmp_path / "k", server=server, user={"token": SECRET}))
    assert await sent(loaded, clock) == expected
    assert [each["server"] for each in logs] == ([] if expected else [server])


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [
        ("http://127.0.0.1:3128", {"Authorization": f"Bearer {SECRET}"}),
        ("http://proxy.example:3128", {}),
        ("https://proxy.example:3128", {}),
    ],
)
async def test_a_token_is_not_sent_without_tls_through_a_proxy_elsewhere(tmp_path, clock, proxy, expected):
    """The proxy would receive it, though the server has a loopback address: that of the proxy."""
    path = kubeconfig(tmp_path / "k", cluster={"proxy-url": proxy}, user={"token": SECRET})
    assert await sent(await load(path), clock) == expected


async def test_a_plugin_is_not_run_for_a_server_without_tls(tmp_path, clock):
    command = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}}
    loaded = await load(kubeconfig(tmp_path / "k", server="http://10.0.0.1", user=command))
    assert await sent(loaded, clock) == {}
