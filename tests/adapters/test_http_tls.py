"""TLS of requests, against servers on loopback: authorities, client certificates, names and renewal."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from support.http_stub import SERVER, get, refusal, server_tls, serving

from hpad.adapter import AdapterError, Context
from hpad.adapter_http import Http, HttpOptions, Request, RequestFailedError, Tls, TlsOptions


@asynccontextmanager
async def answering(authority: trustme.CA, clients: trustme.CA | None = None) -> AsyncIterator[str]:
    """A server that answers with the common name of the client's certificate; yields its URL."""

    async def answer(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert") or {}
        return web.Response(text=str(dict(field[0] for field in peer.get("subject", ())).get("commonName", "")))

    async with serving(answer, tls=server_tls(authority, "named.example.com", clients=clients)) as url:
        yield url


async def test_a_renewed_authority_is_trusted_without_a_restart(context: Context, tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    old.cert_pem.write_to_path(tmp_path / "ca")
    http = Http(context, HttpOptions(tls=TlsOptions(ca=str(tmp_path / "ca"))))
    async with answering(new) as url:
        with pytest.raises(RequestFailedError, match=r"certificate that is not trusted \(.*\): configure ca"):
            await http.send(Request(url=url, name=SERVER))
        new.cert_pem.write_to_path(tmp_path / "ca")
        assert (await http.send(Request(url=url, name=SERVER))).status == 200


async def test_a_renewed_client_certificate_is_used_without_a_restart(context: Context, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca")
    http = Http(context, HttpOptions(tls=TlsOptions(ca=str(tmp_path / "ca"), cert=str(tmp_path / "client"))))
    async with answering(authority, authority) as url:
        for name in ("first", "second"):
            issued = authority.issue_cert(f"{name}@example.com", common_name=name)
            issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "new")
            (tmp_path / "new").replace(tmp_path / "client")
            assert (await http.send(Request(url=url, name=SERVER))).body.decode() == name


async def test_the_error_mentions_a_required_client_certificate(context: Context, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca")
    async with answering(authority, authority) as url:
        text = await refusal(context, url, tls=TlsOptions(ca=str(tmp_path / "ca")))
    assert "client certificate" in text or "closed the connection" in text  # the reset may outrun the reason


async def test_server_name_and_insecure(context: Context, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca")
    ca = str(tmp_path / "ca")
    async with answering(authority) as url:
        assert await get(context, url, tls=TlsOptions(ca=ca, server_name="named.example.com")) == ""
        assert await get(context, url, tls=TlsOptions(insecure=True)) == ""
        assert "not trusted" in await refusal(context, url, tls=TlsOptions(ca=ca, server_name="other.example.com"))


async def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("no PEM")
    os.mkfifo(tmp_path / "pipe")  # OpenSSL would wait for its writer
    for name, complaint in (("gone", "No such file or directory"), ("ca", ""), ("pipe", "not a file")):
        with pytest.raises(AdapterError, match=f"ca, cert or key: {tmp_path / name} cannot be used: {complaint}"):
            await Tls(TlsOptions(ca=str(tmp_path / name))).context()


async def test_an_unchanged_file_is_loaded_once(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca")
    tls = Tls(TlsOptions(ca=str(tmp_path / "ca")))
    assert await tls.context() is await tls.context()
