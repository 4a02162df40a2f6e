"""Finding the API server: kubeconfigs, valid and invalid ones, proxies, and the service account of a pod."""

import json
import os
import subprocess
import sys
import tempfile

import pytest
from support.kubeconfigs import SECRET, kubeconfig, load, refused, sent

from hpad.kube.auth.credentials import ConfigError
from hpad.kube.auth.kubeconfig import load_cluster_config

pytestmark = pytest.mark.usefixtures("home")


def test_an_error_names_the_missing_file_or_entry(tmp_path):
    path = str(tmp_path / "k")
    assert refused(path) == f"{path}: no such file"
    assert refused(str(tmp_path)) == f"{tmp_path}: this is not a file"
    unreadable = tmp_path / ("x" * 300)  # a folder without read permission raises OSError as well, but not for root
    assert refused(unreadable) == f"{unreadable}: File name too long"
    kubeconfig(tmp_path / "k", user={"token": SECRET})
    assert refused(path, "y") == f"{path}, context 'y': there is no 'y' among the contexts: 'x'"
    kubeconfig(tmp_path / "k", context={"cluster": "d"}, user={"token": SECRET})
    assert refused(path) == f"{path}, context 'x': there is no 'd' among the clusters: 'c'"
    kubeconfig(tmp_path / "k", context={"user": "v"}, user={"token": SECRET})
    assert refused(path) == f"{path}, context 'x': there is no 'v' among the users: 'u'"
    kubeconfig(tmp_path / "k", server="", user={"token": SECRET})
    assert refused(path) == f"{path}, context 'x': the cluster 'c' has no server"
    kubeconfig(tmp_path / "k", **{"current-context": ""})
    assert refused(path) == f"{path}: there is no current-context; name one with --context"


@pytest.mark.parametrize("server", ["ftp://10.0.0.1", "https://", "https://10.0.0.1:x", "http://:8080", "//"])
def test_a_server_that_is_not_an_address_is_quoted(tmp_path, server):
    path = kubeconfig(tmp_path / "k", server=server)
    assert refused(path).startswith(f"{path}, context 'x': the cluster 'c' has the server {server!r}, which is not an")


@pytest.mark.parametrize(
    ("cluster", "scheme"), [({}, "http"), ({"insecure-skip-tls-verify": True}, "https")], ids=["plain", "tls"]
)
async def test_a_host_and_a_port_are_a_valid_address(tmp_path, cluster, scheme):
    """They mean https if TLS is configured. Source: client-go, rest/url_utils.go: DefaultServerURL."""
    loaded = await load(kubeconfig(tmp_path / "k", server="localhost:6443", cluster=cluster))
    assert loaded.server == f"{scheme}://localhost:6443"


@pytest.mark.parametrize("value", ["false", "true", 0, 1, "", []])
def test_verification_of_tls_is_left_out_only_by_a_boolean(tmp_path, value):
    """Text such as "false" counts as true in Python; kubectl refuses it."""
    path = kubeconfig(tmp_path / "k", server="https://a", cluster={"insecure-skip-tls-verify": value})
    assert "the cluster 'c' has an insecure-skip-tls-verify that is neither true nor false" in refused(path)


@pytest.mark.parametrize("value", [None, False, True])
async def test_tls_is_verified_unless_the_cluster_says_otherwise(tmp_path, value):
    path = kubeconfig(tmp_path / "k", server="https://a", cluster={"insecure-skip-tls-verify": value})
    assert (await load(path)).ssl.check_hostname is (value is not True)


@pytest.mark.parametrize("name", ["certificate-authority", "certificate-authority-data"])
def test_an_authority_that_would_be_ignored_is_refused(tmp_path, name):
    """As by kubectl. Source: client-go, transport/transport.go: TLSConfigFor."""
    path = kubeconfig(tmp_path / "k", server="https://a", cluster={"insecure-skip-tls-verify": True, name: "x"})
    assert f"the cluster 'c' has a {name}, which insecure-skip-tls-verify: true would ignore" in refused(path)


@pytest.mark.parametrize(
    ("section", "entry"),
    [
        ("contexts", {"name": "x", "context": {"cluster": "d"}}),
        ("clusters", {"name": "c", "cluster": {"server": "https://b"}}),
        ("users", {"name": "u", "user": {"token": SECRET}}),
    ],
)
def test_a_name_that_two_entries_of_a_file_have_is_refused(tmp_path, section, entry):
    """As by kubectl. Source: client-go, tools/clientcmd/api/v1/conversion.go."""
    path = kubeconfig(tmp_path / "k")
    content = json.loads((tmp_path / "k").read_text())
    content[section].append(entry)
    (tmp_path / "k").write_text(json.dumps(content))
    assert refused(path) == f"{path}: several {section} have the name {entry['name']!r}: remove all but one"


def test_a_file_without_content_is_refused(tmp_path):
    (tmp_path / "k").write_text("# nothing yet")
    assert refused(str(tmp_path / "k")) == f"{tmp_path / 'k'}: has no content"


@pytest.mark.parametrize("text", ["[]", "a: [", f"users:\n- token: {SECRET}\n  {SECRET}", "\x00"])
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path, text):
    (tmp_path / "k").write_text(text)
    assert f"{tmp_path / 'k'}: not a kubeconfig" in refused(str(tmp_path / "k"))


@pytest.mark.parametrize("text", ["[]", "a: [", "hello"])
def test_the_one_of_several_files_that_is_no_kubeconfig_is_named(tmp_path, monkeypatch, text):
    (tmp_path / "broken").write_text(text)
    monkeypatch.setenv("KUBECONFIG", f"{kubeconfig(tmp_path / 'k')}{os.pathsep}{tmp_path / 'broken'}")
    assert refused().startswith(f"{tmp_path / 'broken'}: not a kubeconfig")


def test_a_kubeconfig_cut_at_any_byte_raises_nothing_but_a_config_error(tmp_path):
    """hpad may read the file while another program writes it."""
    (tmp_path / "k").write_text(
        "clusters:\n- name: c\n  cluster:\n    server: http://127.0.0.1:1\n"
        "contexts:\n- name: x\n  context:\n    cluster: c\n    user: u\ncurrent-context: x\n"
        "users:\n- name: u\n  user:\n    exec:\n      command: /bin/false\n"
        "      env:\n      - name: A\n        value: b\n"
    )
    whole = (tmp_path / "k").read_bytes()
    errors = []
    for end in range(len(whole)):
        (tmp_path / "k").write_bytes(whole[:end])
        try:
            load_cluster_config(str(tmp_path / "k"))
        except ConfigError as error:
            errors.append(str(error))
    assert len(errors) > len(whole) / 2


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"users": ["u"]}, "users[0] is no mapping with a name"),
        ({"contexts": [{"name": "x", "context": "c"}]}, "the context 'x' is no mapping"),
        ({"user": {"exec": []}}, "exec: this is no mapping with a command"),
        ({"user": {"exec": {"args": "a b"}}}, "exec: args is no list"),
        (
            {"user": {"exec": {"env": [{"name": "A"}]}}},
            "exec: env is no list of variables with a name and a value each",
        ),
        ({"user": {"exec": {"args": ["a\0b"]}}}, "exec: /bin/true cannot be run: embedded null byte"),
        ({"user": {"auth-provider": "oidc"}}, "the user 'u' has the auth-provider 'oidc'"),
        ({"user": {"token": "one\ntwo"}}, "the token is invalid: it contains characters such as a line break"),
    ],
)
def test_an_error_names_the_entry_of_another_type(tmp_path, more, problem):
    runs = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/true"}
    if more.get("user", {}).get("exec"):
        more = {"user": {"exec": {**runs, **more["user"]["exec"]}}}
    assert problem in refused(kubeconfig(tmp_path / "k", **more))


def test_an_error_of_a_token_names_the_kubeconfig(tmp_path):
    (tmp_path / "token").write_text("one\ntwo\n")
    path = kubeconfig(tmp_path / "k", user={"tokenFile": "token"})
    assert refused(path).startswith(f"{path}, context 'x': the token is invalid")


def test_a_token_file_without_end_is_not_read_to_its_end(tmp_path):
    path = kubeconfig(tmp_path / "k", user={"tokenFile": "/dev/zero"})
    assert "tokenFile: /dev/zero: cannot be read, is empty, or is larger than 1 MiB" in refused(path)


async def test_the_token_stays_in_use_if_no_temporary_folder_can_be_created(tmp_path, clock, monkeypatch):
    (tmp_path / "token").write_text("one\n")
    loaded = await load(kubeconfig(tmp_path / "k", user={"tokenFile": "token"}))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    clock.skipped += 61
    assert await sent(loaded, clock) == {"Authorization": "Bearer one"}
    clock.skipped += 61
    assert await sent(loaded, clock) == {"Authorization": "Bearer one"}


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that even root cannot read: /proc/self/mem")
def test_an_error_tells_an_unreadable_kubeconfig_from_an_invalid_one():
    assert refused("/proc/self/mem") == "/proc/self/mem: cannot be read: Input/output error"


def test_an_error_without_a_cluster_names_the_places_that_were_searched(tmp_path, monkeypatch):
    assert "KUBECONFIG is not set" in refused()
    assert "there is no kubeconfig with the context 'x'" in refused(None, "x")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert "no such file exists" in refused()


async def test_kubeconfigs_are_searched_in_order(tmp_path, home, monkeypatch, clock):
    kubeconfig(home / ".kube" / "config", server="http://home")
    assert (await load()).server == "http://home"
    one = kubeconfig(tmp_path / "one", server="https://one", user={"token": "1"})
    two = kubeconfig(
        tmp_path / "two", server="http://two", contexts=[{"name": "z", "context": {"cluster": "c", "user": "u"}}]
    )
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "none"), one, two]))
    loaded = await load(None, "z")
    assert loaded.server == "https://one"  # entries of the first file take precedence
    assert await sent(loaded, clock) == {"Authorization": "Bearer 1"}
    assert (await load(two, "z")).server == "http://two"


async def test_the_first_file_with_a_current_context_sets_it(tmp_path, monkeypatch):
    """Later files do not override it. Source: client-go, clientcmd/loader.go: ClientConfigLoadingRules.Load."""

    def written(name, current):
        context = {"name": name, "context": {"cluster": name, "user": "u"}}
        cluster = {"name": name, "cluster": {"server": f"http://{name}"}}
        return kubeconfig(tmp_path / name, clusters=[cluster], contexts=[context], **{"current-context": current})

    files = [written("none", ""), written("first", "first"), written("second", "second")]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(files))
    assert (await load()).server == "http://first"
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(reversed(files)))
    assert (await load()).server == "http://second"


async def test_the_proxy_comes_from_the_kubeconfig_or_else_from_the_environment(tmp_path, monkeypatch):
    loaded = await load(kubeconfig(tmp_path / "k", cluster={"proxy-url": "http://proxy:3128"}))
    assert loaded.proxy == "http://proxy:3128"
    monkeypatch.setenv("https_proxy", "http://env:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert (await load(kubeconfig(tmp_path / "k", server="https://api.example"))).proxy == "http://env:1"
    assert (await load(kubeconfig(tmp_path / "k", server="https://127.0.0.1:1"))).proxy is None
    monkeypatch.delenv("no_proxy")
    for loopback in ("127.0.0.1:1", "127.1.2.3", "localhost:1", "[::1]:1"):
        assert (await load(kubeconfig(tmp_path / "k", server=f"https://{loopback}"))).proxy is None, loopback
    path = kubeconfig(tmp_path / "k", cluster={"proxy-url": "socks5://u:s3cret-t0ken@proxy"})
    with pytest.raises(ConfigError, match="only http and https") as caught:
        await load(path)
    assert SECRET not in str(caught.value)
    assert "ssh -L 6443:SERVER:6443" in str(caught.value), "what to do instead"


async def test_a_proxy_of_the_environment_may_lack_its_scheme(tmp_path, monkeypatch):
    """Source: golang.org/x/net, http/httpproxy/proxy.go: parseProxy."""
    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    loaded = await load(kubeconfig(tmp_path / "k", server="https://api.example"))
    assert loaded.proxy == "http://proxy.example:3128"


def test_a_proxy_of_a_kubeconfig_needs_its_scheme(tmp_path):
    path = kubeconfig(tmp_path / "k", cluster={"proxy-url": f"u:{SECRET}@proxy:3128"})
    assert refused(path) == "proxy-url: this is not an address such as http://proxy.example:3128"


@pytest.mark.parametrize("proxy", ["http://[::1", f"http://u:{SECRET}@proxy:x", "http://", "http://proxy:0"])
def test_a_proxy_that_is_not_an_address_is_refused_and_not_quoted(tmp_path, proxy):
    path = kubeconfig(tmp_path / "k", cluster={"proxy-url": proxy})
    assert refused(path) == "proxy-url: this is not an address such as http://proxy.example:3128"


def test_a_server_with_a_user_in_its_address_is_refused_and_not_quoted(tmp_path):
    path = kubeconfig(tmp_path / "k", server=f"https://admin:{SECRET}@10.0.0.1:6443")
    assert "the cluster 'c' has a server with a user in its address" in refused(path)


@pytest.fixture
def pod(tmp_path, monkeypatch, authority):
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("one\n")
    (folder / "namespace").write_text("team\n")
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    monkeypatch.setattr("hpad.kube.auth.kubeconfig._SERVICE_ACCOUNT", folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    return folder


async def test_a_pod_uses_its_service_account_and_reads_the_token_again(pod, clock):
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
def test_an_error_names_the_folder_of_an_incomplete_service_account(pod, name):
    (pod / name).unlink()
    assert str(pod) in refused()


def test_kubernetes_asyncio_is_not_imported_before_a_kubeconfig_is_read():
    """The import takes a third of a second and 38 MiB, which commands without an API server save."""
    program = "import sys, hpad.kube.cluster, hpad.kube.auth.kubeconfig; sys.exit('kubernetes_asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
