"""Finding a cluster: kubeconfigs of every shape, plugins, tokens, certificates, and the service account of a pod."""

import asyncio
import base64
import dataclasses
import json
import os
import ssl
import stat
import subprocess
import sys
import tempfile
import textwrap

import pytest
import trustme
from kube.wire import Script, says, serving

from hpad.kube import config
from hpad.kube.client import Client
from hpad.kube.errors import ApiError

PATH = "/api/v1/pods"
SECRET = "s3cret-t0ken"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """No kubeconfig of whoever runs the tests."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def kubeconfig(path, *, server="http://127.0.0.1:1", user=None, cluster=None, context=None, **more):
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **(context or {})}}],
        "current-context": "x",
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def refused(*arguments):
    with pytest.raises(config.ConfigError) as caught:
        config.load(*arguments)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


async def sent(loaded, clock):
    return dict(await loaded.identity.headers(clock))


async def load(*arguments):
    return await asyncio.to_thread(config.load, *arguments)


async def test_a_token(tmp_path, clock):
    path = kubeconfig(tmp_path / "k", user={"token": SECRET}, context={"namespace": "team"})
    loaded = await load(path)
    assert (loaded.server, loaded.namespace, loaded.ssl) == ("http://127.0.0.1:1", "team", None)
    assert loaded.source == f"{path}, context x"
    assert await sent(loaded, clock) == {"Authorization": f"Bearer {SECRET}"}
    assert SECRET not in repr(loaded)


async def test_a_user_and_a_password(tmp_path, clock):
    loaded = await load(kubeconfig(tmp_path / "k", user={"username": "a", "password": "b"}))
    assert await sent(loaded, clock) == {"Authorization": "Basic " + base64.b64encode(b"a:b").decode()}


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", "https://127.0.0.1:1"])
async def test_nobody_in_particular(tmp_path, clock, server):
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


async def test_a_plugin_is_asked_again_before_its_token_expires_and_after_a_failure(tmp_path, clock):
    body = COUNTING.replace("FAILING", "2").replace("EXPIRES", repr("2026-01-01T01:00:00Z"))
    clock.skipped -= asyncio.get_running_loop().time()  # midnight of that day
    loaded = await load(kubeconfig(tmp_path / "k", user=plugin(tmp_path / "login", body)))
    seen = []
    for seconds in (0, 3_000, 539, 10, 30):
        clock.skipped += seconds
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


GIVING = """
    import json
    head = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    print(json.dumps({**head, "status": STATUS}))
"""


async def test_a_plugin_is_told_of_the_cluster_where_it_wants_that(tmp_path, clock):
    """The file of the certificate authority lies beside the kubeconfig, and so does the plugin."""
    (tmp_path / "ca.crt").write_text("an authority")
    body = GIVING.replace("STATUS", "{'token': __import__('os').environ['KUBERNETES_EXEC_INFO'].encode().hex()}")
    user = plugin(tmp_path / "login", body)
    user["exec"] |= {"command": "./login", "provideClusterInfo": True, "env": [{"name": "A", "value": "b"}]}
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    cluster = {"certificate-authority": "ca.crt", "tls-server-name": "api", "extensions": [extension]}
    loaded = await load(kubeconfig(tmp_path / "k", user=user, cluster=cluster))
    told = json.loads(bytes.fromhex((await sent(loaded, clock))["Authorization"].removeprefix("Bearer ")))
    assert told == {
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


async def test_certificates_of_a_plugin_are_renewed_before_they_end(tmp_path, authority, clock):
    """A server that knows one authority at first and only another one later."""
    other = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(server)
    given = tmp_path / "given.json"

    def give(certificate, expires):
        status = {
            "clientCertificateData": certificate.cert_chain_pems[0].bytes().decode(),
            "clientKeyData": certificate.private_key_pem.bytes().decode(),
            "expirationTimestamp": expires,
        }
        given.write_text(json.dumps(status))

    body = GIVING.replace("STATUS", f"json.load(open({str(given)!r}))")
    trust = {"certificate-authority-data": encoded(authority.cert_pem)}
    script = Script()
    script.on("GET", PATH, says(b"known"))
    await asyncio.to_thread(give, authority.issue_cert("a@example.org"), "2026-01-01T01:00:00Z")
    clock.skipped -= asyncio.get_running_loop().time()  # midnight of that day
    async with serving(script.handle, ssl_context=server) as port:
        url, user = f"https://127.0.0.1:{port}", plugin(tmp_path / "login", body)
        loaded = await load(kubeconfig(tmp_path / "k", server=url, user=user, cluster=trust))
        async with Client(loaded, clock) as client:
            assert await client.request("GET", PATH) == b"known"
    await asyncio.to_thread(give, other.issue_cert("b@example.org"), "2026-01-01T02:00:00Z")
    later = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    later.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("127.0.0.1").configure_cert(later)
    other.configure_trust(later)
    async with serving(script.handle, ssl_context=later) as port:
        moved = dataclasses.replace(loaded, server=f"https://127.0.0.1:{port}")
        clock.skipped += 3545  # less than a minute before the first one ends
        async with Client(moved, clock) as client:
            assert await client.request("GET", PATH) == b"known"


def test_a_plugin_that_wants_to_talk_is_refused(tmp_path):
    user = plugin(tmp_path / "login", GIVING)
    user["exec"]["interactiveMode"] = "Always"
    assert "interactiveMode: Always" in refused(kubeconfig(tmp_path / "k", user=user))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise SystemExit('please log in')", "please log in"),
        ("raise SystemExit(3)", "failed (3): without a word"),
        ("print('what?')", "did not print an ExecCredential"),
        ("print('{}')", "did not print an ExecCredential"),
        (GIVING.replace("STATUS", "{}"), "neither a token nor a client certificate"),
        (GIVING.replace("STATUS", repr({"clientCertificateData": "x"})), "without a key"),
        (GIVING.replace("STATUS", repr({"token": "x"})).replace("/v1", "/v1beta1"), "instead of"),
    ],
)
def test_a_plugin_that_fails_is_named(tmp_path, body, said):
    path = kubeconfig(tmp_path / "k", user=plugin(tmp_path / "login", body))
    message = refused(path)
    assert said in message
    assert f"{path}, context 'x'" in message


def test_a_plugin_that_is_not_there(tmp_path):
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(tmp_path / "none")}}
    assert "No such file" in refused(kubeconfig(tmp_path / "k", user=user))


def jwt(number, expires):
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires, "n": number}).encode()).decode().rstrip("=")
    return f"head.{claims}.{SECRET}"


PAST, FUTURE = 1_000_000_000, 4_000_000_000


class Provider:
    """An OpenID Connect provider with one client."""

    def __init__(self, *, answer=None, status=200):
        self.script, self.answer, self.status = Script(), answer, status
        self.used = []

    async def handle(self, request):
        if request.path.endswith("openid-configuration"):
            return await says({"token_endpoint": f"http://{request.host}/token"})(request)
        form = await request.post()
        self.used.append((form["refresh_token"], request.headers.get("Authorization")))
        given = {"id_token": jwt(len(self.used), FUTURE)} if self.answer is None else self.answer
        return await says(given, self.status)(request)


def oidc(port, **more):
    settings = {"idp-issuer-url": f"http://127.0.0.1:{port}", "client-id": "me", "client-secret": "s", **more}
    return {"auth-provider": {"name": "oidc", "config": settings}}


async def test_an_expired_oidc_token_is_refreshed_once(tmp_path, clock):
    provider = Provider()
    async with serving(provider.handle) as port:
        user = oidc(port, **{"id-token": jwt(0, PAST), "refresh-token": "r-1"})
        loaded = await load(kubeconfig(tmp_path / "k", user=user))
        for _ in range(3):
            assert await sent(loaded, clock) == {"Authorization": f"Bearer {jwt(1, FUTURE)}"}
            clock.skipped += 61
    assert provider.used == [("r-1", "Basic " + base64.b64encode(b"me:s").decode())]


async def test_a_good_oidc_token_asks_nobody(tmp_path, clock):
    user = oidc(1, **{"id-token": jwt(0, FUTURE)})
    loaded = await load(kubeconfig(tmp_path / "k", user=user))
    assert await sent(loaded, clock) == {"Authorization": f"Bearer {jwt(0, FUTURE)}"}


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ({"error": "invalid_grant", "error_description": SECRET}, 400, "answered 400: invalid_grant"),
        ({}, 200, "without an id_token"),
        (b"<html>", 200, "answered something else"),
        (SECRET.encode(), 500, "answered 500: no reason given"),
    ],
)
async def test_an_oidc_provider_that_refuses_is_quoted_with_care(tmp_path, answer, status, said):
    async with serving(Provider(answer=answer, status=status).handle) as port:
        path = kubeconfig(tmp_path / "k", user=oidc(port, **{"refresh-token": SECRET}))
        message = await asyncio.to_thread(refused, path)
    assert said in message
    assert "context 'x': oidc: " in message


def test_oidc_without_what_it_needs(tmp_path):
    assert "log in again" in refused(kubeconfig(tmp_path / "k", user=oidc(1, **{"id-token": jwt(0, PAST)})))
    insecure = oidc(1, **{"refresh-token": SECRET, "idp-issuer-url": "http://idp.example"})
    assert "no https URL" in refused(kubeconfig(tmp_path / "k", user=insecure))
    gcp = {"auth-provider": {"name": "gcp", "config": {"access-token": SECRET}}}
    assert "use an exec plugin" in refused(kubeconfig(tmp_path / "k", user=gcp))


@pytest.mark.parametrize("name", ["as", "as-uid", "as-groups"])
def test_impersonation_is_refused_aloud(tmp_path, name):
    path = kubeconfig(tmp_path / "k", user={"token": SECRET, name: "root"})
    assert f"impersonation ({name}:)" in refused(path)


def test_what_is_missing_is_named(tmp_path):
    path = str(tmp_path / "k")
    assert refused(path) == f"{path}: no such file"
    kubeconfig(tmp_path / "k", user={"token": SECRET})
    assert refused(path, "y") == f"{path}, context 'y': no 'y' among the contexts; there is 'x'"
    kubeconfig(tmp_path / "k", context={"cluster": "d"}, user={"token": SECRET})
    assert refused(path) == f"{path}, context 'x': no 'd' among the clusters; there is 'c'"
    kubeconfig(tmp_path / "k", context={"user": "v"}, user={"token": SECRET})
    assert refused(path) == f"{path}, context 'x': no 'v' among the users; there is 'u'"
    kubeconfig(tmp_path / "k", server="", user={"token": SECRET})
    assert refused(path) == f"{path}, context 'x': the cluster 'c' has no server"
    kubeconfig(tmp_path / "k", **{"current-context": ""})
    assert refused(path) == f"{path}: there is no current-context; name one with --context"


@pytest.mark.parametrize("text", ["", "[]", "a: [", f"users:\n- token: {SECRET}\n  {SECRET}", "\x00"])
def test_what_is_no_kubeconfig(tmp_path, text):
    (tmp_path / "k").write_text(text)
    assert f"{tmp_path / 'k'}: not a kubeconfig" in refused(str(tmp_path / "k"))


def test_nothing_is_configured(tmp_path, monkeypatch):
    assert "KUBECONFIG is not set" in refused()
    assert "context 'x' is asked for" in refused(None, "x")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert "no such file is there" in refused()


async def test_kubeconfigs_are_looked_for_in_order(tmp_path, home, monkeypatch, clock):
    kubeconfig(home / ".kube" / "config", server="http://home")
    assert (await load()).server == "http://home"
    one = kubeconfig(tmp_path / "one", server="http://one", user={"token": "1"})
    two = kubeconfig(
        tmp_path / "two", server="http://two", contexts=[{"name": "z", "context": {"cluster": "c", "user": "u"}}]
    )
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "none"), one, two]))
    loaded = await load(None, "z")
    assert loaded.server == "http://one"  # the first file that names a cluster has it
    assert await sent(loaded, clock) == {"Authorization": "Bearer 1"}
    assert (await load(two, "z")).server == "http://two"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def encoded(blob):
    return base64.b64encode(blob.bytes()).decode()


async def test_client_certificates_and_a_private_authority(tmp_path, authority, clock, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(server)
    authority.issue_cert("api.internal").configure_cert(server)
    mine = authority.issue_cert("hpad@example.org")
    user = {
        "client-certificate-data": encoded(mine.cert_chain_pems[0]),
        "client-key-data": encoded(mine.private_key_pem),
    }
    trust = {"certificate-authority-data": encoded(authority.cert_pem), "tls-server-name": "api.internal"}
    script = Script()
    script.on("GET", PATH, says(b"known"))
    async with serving(script.handle, ssl_context=server) as port:
        url = f"https://127.0.0.1:{port}"
        loaded = await load(kubeconfig(tmp_path / "k", server=url, user=user, cluster=trust))
        async with Client(loaded, clock) as client:
            assert await client.request("GET", PATH) == b"known"
            clock.skipped += 61  # certificates are read again
            assert await client.request("GET", PATH) == b"known"
        stranger = await load(kubeconfig(tmp_path / "k", server=url, cluster=trust))
        async with Client(stranger, clock) as client:
            with pytest.raises(ApiError):
                await client.request("GET", PATH)
        anything = {"insecure-skip-tls-verify": True}
        careless = await load(kubeconfig(tmp_path / "k", server=url, user=user, cluster=anything))
        async with Client(careless, clock) as client:
            assert await client.request("GET", PATH) == b"known"
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_a_client_certificate_that_is_refused_is_read_again(tmp_path, authority, clock):
    """The server hangs up without a word; the next request comes with what lies in the files by then."""
    first, second = trustme.CA(), trustme.CA()

    def issued(ca):
        mine = ca.issue_cert("hpad@example.org")
        mine.cert_chain_pems[0].write_to_path(str(tmp_path / "hpad.crt"))
        mine.private_key_pem.write_to_path(str(tmp_path / "hpad.key"))

    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("127.0.0.1").configure_cert(server)
    second.configure_trust(server)
    script = Script()
    script.on("GET", PATH, says(b"known"))
    await asyncio.to_thread(issued, first)
    async with serving(script.handle, ssl_context=server) as port:
        user = {"client-certificate": "hpad.crt", "client-key": "hpad.key"}
        trust = {"certificate-authority-data": encoded(authority.cert_pem)}
        url = f"https://127.0.0.1:{port}"
        loaded = await load(kubeconfig(tmp_path / "k", server=url, user=user, cluster=trust))
        async with Client(loaded, clock) as client:
            await asyncio.to_thread(issued, second)
            with pytest.raises(ApiError):
                await client.request("GET", PATH)
            assert await client.request("GET", PATH) == b"known"


def test_certificates_that_cannot_be_used(tmp_path):
    path, https = tmp_path / "k", "https://127.0.0.1:1"
    (tmp_path / "ca.crt").write_text("nothing of the kind")
    message = refused(kubeconfig(path, server=https, cluster={"certificate-authority": "ca.crt"}))
    assert "certificate authority cannot be used" in message
    missing = kubeconfig(path, server=https, user={"token": SECRET}, cluster={"certificate-authority": "none.crt"})
    assert f"File does not exists: {tmp_path / 'none.crt'}" in refused(missing)


async def test_proxies(tmp_path, monkeypatch):
    loaded = await load(kubeconfig(tmp_path / "k", cluster={"proxy-url": "http://proxy:3128"}))
    assert loaded.proxy == "http://proxy:3128"
    monkeypatch.setenv("https_proxy", "http://env:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert (await load(kubeconfig(tmp_path / "k", server="https://api.example"))).proxy == "http://env:1"
    assert (await load(kubeconfig(tmp_path / "k", server="https://127.0.0.1:1"))).proxy is None
    path = kubeconfig(tmp_path / "k", cluster={"proxy-url": "socks5://u:s3cret-t0ken@proxy"})
    with pytest.raises(config.ConfigError, match="only http and https") as caught:
        await load(path)
    assert SECRET not in str(caught.value)


@pytest.fixture
def pod(tmp_path, monkeypatch, authority):
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("one\n")
    (folder / "namespace").write_text("team\n")
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    monkeypatch.setattr(config, "_SERVICE_ACCOUNT", folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    return folder


async def test_in_a_pod(pod, clock):
    loaded = await load()
    assert (loaded.server, loaded.namespace) == ("https://[fd00::1]:6443", "team")
    assert await sent(loaded, clock) == {"Authorization": "Bearer one"}
    (pod / "token").write_text("two\n")
    clock.skipped += 61
    assert await sent(loaded, clock) == {"Authorization": "Bearer two"}
    (pod / "token").unlink()
    clock.skipped += 61
    assert await sent(loaded, clock) == {"Authorization": "Bearer two"}


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_a_pod_without_a_service_account(pod, name):
    (pod / name).unlink()
    assert str(pod) in refused()


def test_only_a_real_cluster_imports_the_package():
    program = "import sys, hpad.kube.cluster, hpad.kube.config; sys.exit('kubernetes_asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
