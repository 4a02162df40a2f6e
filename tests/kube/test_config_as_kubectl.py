"""Which credentials of a kubeconfig are sent: those that a real kubectl sends.

Source: client-go, clientcmd/client_config.go: getUserIdentificationPartialConfig; transport/token_source.go;
plugin/pkg/client/auth/exec: UpdateTransportConfig.
"""

import asyncio
import json
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from support.kubeconfigs import encoded, kubeconfig, load
from support.kubectl_binaries import kubectls
from support.scripted_server import Script, says, serving

from hpad.kube.client import Client

pytestmark = [pytest.mark.usefixtures("home"), pytest.mark.parametrize("kubectl", kubectls())]

PATH = "/api/v1/pods"
EXEC = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "./plug.sh"}
PLUGIN = """#!/bin/sh
echo "warning: login expires soon" >&2
head='"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1"'
echo "{$head, \\"status\\": {\\"token\\": \\"plugged$MORE\\", \\"clientCertificateData\\": null}}"
"""
BASIC = "Basic dTpw"


async def compare(
    folder: Path, kubectl: str, clock: Any, user: dict[str, Any], *files: str, trust: dict[str, Any] | None = None
) -> str | None:
    """Returns the Authorization header that kubectl sends, which hpad must send as well.

    `files`: those of KUBECONFIG, by name in the folder, which is the working directory; the last one has the user.
    `trust`: fields of the cluster, in place of the authority's certificate; `ca.pem` is a file with it.
    """
    authority, script = trustme.CA(), Script()
    script.on("GET", PATH, says(b"{}"))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    names = files or ("config",)
    async with serving(script.handle, tls=tls) as port:
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        cluster = trust or {"certificate-authority-data": encoded(authority.cert_pem)}
        kubeconfig(folder / names[-1], server=f"https://127.0.0.1:{port}", user=user, cluster=cluster)
        joined = os.pathsep.join(names)
        environment = {"PATH": os.defpath, "HOME": str(folder / "home"), "KUBECONFIG": joined}
        process = await asyncio.create_subprocess_exec(
            kubectl, "get", "--raw", PATH, env=environment, cwd=folder, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(120):
            _, stderr = await process.communicate()
        assert process.returncode == 0, stderr
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", joined)
            patch.chdir(folder)
            loaded = await load()
            async with Client(loaded, clock) as client:
                await client.request("GET", PATH)
    sent = [
        headers.get("Authorization")
        for (_, path, _), headers in zip(script.asked, script.headers, strict=True)
        if path == PATH
    ]
    theirs, ours = sent
    assert ours == theirs
    return ours


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"token": "inline", "tokenFile": "tok"}, "Bearer from-file"),
        ({"token": "inline", "tokenFile": "gone"}, "Bearer inline"),
        ({"token": "inline", "tokenFile": "empty"}, "Bearer inline"),
        ({"token": "inline", "tokenFile": "folder"}, "Bearer inline"),
        ({"tokenFile": "tok"}, "Bearer from-file"),
        ({"token": "inline", "exec": EXEC}, "Bearer inline"),
        ({"tokenFile": "tok", "exec": EXEC}, "Bearer from-file"),
        ({"username": "u", "password": "p", "exec": EXEC}, BASIC),
        ({"exec": EXEC}, "Bearer plugged"),
        ({"exec": {**EXEC, "args": None, "env": None}}, "Bearer plugged"),
        ({"exec": {**EXEC, "args": [None], "env": [{"name": "MORE", "value": None}]}}, "Bearer plugged"),
        ({"token": "", "tokenFile": None, "exec": EXEC}, "Bearer plugged"),
        ({"username": "u", "password": "p"}, BASIC),
        ({"username": "u"}, "Basic dTo="),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
async def test_credentials_have_the_precedence_of_kubectl(
    tmp_path: Path, kubectl: str, clock: Any, user: dict[str, Any], expected: str | None
) -> None:
    """The plugin is beside a kubeconfig that is named by a bare file name."""
    (tmp_path / "tok").write_text("from-file\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "plug.sh").write_text(PLUGIN)
    (tmp_path / "plug.sh").chmod(0o755)
    assert await compare(tmp_path, kubectl, clock, user) == expected


async def test_an_empty_text_is_the_same_as_an_absent_field(tmp_path: Path, kubectl: str, clock: Any) -> None:
    """Programs that write kubeconfigs from a form write the fields that were left empty, too."""
    (tmp_path / "tok").write_text("from-file\n")
    of_cluster = ("certificate-authority-data", "tls-server-name", "proxy-url")
    of_user = ("client-certificate-data", "client-key-data", "token", "username", "as")
    trust = {"certificate-authority": "ca.pem", **dict.fromkeys(of_cluster, "")}
    user = {"tokenFile": "tok", **dict.fromkeys(of_user, "")}
    assert await compare(tmp_path, kubectl, clock, user, trust=trust) == "Bearer from-file"


@pytest.mark.parametrize(
    "content",
    ["", "\n", "# nothing yet\n", "---\n", "null\n", "{}", "apiVersion: v1\nkind: Config\n", "users:\ncontexts: []\n"],
)
async def test_a_file_without_content_among_several_adds_nothing(
    tmp_path: Path, kubectl: str, clock: Any, content: str
) -> None:
    (tmp_path / "first").write_text(content)
    assert await compare(tmp_path, kubectl, clock, {"token": "inline"}, "first", "gone", "config") == "Bearer inline"


async def test_the_first_of_several_users_of_one_name_counts_as_a_whole(
    tmp_path: Path, kubectl: str, clock: Any
) -> None:
    (tmp_path / "tok").write_text("from-file\n")
    first = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "u", "user": {"token": "first"}}]}
    (tmp_path / "first").write_text(json.dumps(first))
    assert await compare(tmp_path, kubectl, clock, {"tokenFile": "tok"}, "first", "config") == "Bearer first"
