"""TLS: replaced certificates, and files that cannot be used."""

import asyncio
import importlib.util
from pathlib import Path

import aiohttp
import pytest
import trustme
from support import http_server

from hpad.daemon import process
from hpad.serve.server import ServeError
from hpad.settings.model import Serving, serving_problems
from hpad.settings.rows import names


def test_settings_that_need_each_other_are_named() -> None:
    file = Path("/some/file")
    assert serving_problems(Serving(), "0.0.0.0") == []
    assert serving_problems(Serving(token_file=file), "127.0.0.1") == []
    cases = (
        (Serving(certificate=file), "127.0.0.1", "private_key"),
        (Serving(private_key=file), "127.0.0.1", "certificate"),
        (Serving(token_file=file), "0.0.0.0", "token_file"),
        (Serving(review=True), "10.1.2.3", "review"),
    )
    for serving, host, field in cases:
        assert [problem.path for problem in serving_problems(serving, host)] == [field]


async def test_a_changed_certificate_is_served_and_a_broken_one_is_not(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    certificate, key = http_server.write_certificate(tmp_path, old)
    async with http_server.opened(Serving(certificate=certificate, private_key=key)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert (await http_server.get(server.url + "/", tls=http_server.client(old)))[0] == 200
        key.write_text("not a key")
        for _ in range(2):
            await server.refresh()
            (trouble,) = server.troubles
            assert trouble.startswith(f"the previous certificates stay in use: tls_cert_file {certificate}")
        assert (await http_server.get(server.url + "/", tls=http_server.client(old)))[0] == 200
        http_server.write_certificate(tmp_path, new)
        await server.refresh()
        assert server.troubles == []
        assert (await http_server.get(server.url + "/", tls=http_server.client(new)))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await http_server.get(server.url + "/", tls=http_server.client(old))


@pytest.mark.parametrize("field", ["certificate", "private_key"])
async def test_a_missing_file_is_named_with_its_setting(tmp_path: Path, field: str) -> None:
    certificate, key = http_server.write_certificate(tmp_path, trustme.CA())
    files = {"certificate": certificate, "private_key": key}
    with pytest.raises(ServeError, match=rf"^{names(Serving)[field]}: .*/none\.pem: No such file"):
        async with http_server.opened(Serving(**{**files, field: tmp_path / "none.pem"})):
            pass


async def test_unusable_files_are_named_with_their_settings(tmp_path: Path) -> None:
    certificate, _ = http_server.write_certificate(tmp_path, trustme.CA())
    (tmp_path / "odd.pem").write_text("nothing")
    with pytest.raises(ServeError, match=r"^tls_cert_file .*, tls_private_key_file .*odd\.pem: cannot be used for TLS"):
        async with http_server.opened(Serving(certificate=certificate, private_key=tmp_path / "odd.pem")):
            pass


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed")
def test_uvloop_follows_changed_files(tmp_path: Path) -> None:
    """uvloop has an implementation of TLS of its own."""
    old, new = trustme.CA(), trustme.CA()
    certificate, key = http_server.write_certificate(tmp_path, old)

    async def main() -> list[int]:
        async with http_server.opened(Serving(certificate=certificate, private_key=key)) as server:
            before = await http_server.get(server.url + "/", tls=http_server.client(old))
            await asyncio.to_thread(http_server.write_certificate, tmp_path, new)
            await server.refresh()
            after = await http_server.get(server.url + "/", tls=http_server.client(new))
        return [before[0], after[0]]

    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        assert runner.run(main()) == [200, 200]
