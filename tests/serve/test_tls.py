"""TLS: certificates that change while connections come, and clients that show theirs."""

import asyncio
import contextlib
import importlib.util
import ssl
from pathlib import Path

import aiohttp
import pytest
import trustme
from support import http_server

from hpad.clock import SystemClock
from hpad.daemon import process
from hpad.serve.server import ServeError
from hpad.settings import SERVING
from hpad.settings.model import Serving, serving_problems


def test_what_does_not_go_together_is_named() -> None:
    file = Path("/some/file")
    assert serving_problems(Serving(), "0.0.0.0") == []
    assert serving_problems(Serving(token_file=file), "127.0.0.1") == []
    for serving, host, field in (
        (Serving(certificate=file), "127.0.0.1", "private_key"),
        (Serving(private_key=file), "127.0.0.1", "certificate"),
        (Serving(client_ca=file), "127.0.0.1", "client_ca"),
        (Serving(token_file=file), "0.0.0.0", "token_file"),
        (Serving(review=True), "10.1.2.3", "review"),
    ):
        assert [each for each, _ in serving_problems(serving, host)] == [field]


async def test_a_changed_certificate_is_served_and_a_broken_one_is_not(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    certificate, key = http_server.write_certificate(tmp_path, old)
    async with http_server.opened(Serving(certificate=certificate, private_key=key)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert (await http_server.get(server.url + "/", tls=http_server.client(old)))[0] == 200
        key.write_text("not a key")
        await server.refresh()
        assert (await http_server.get(server.url + "/", tls=http_server.client(old)))[0] == 200
        http_server.write_certificate(tmp_path, new)
        await server.refresh()
        assert (await http_server.get(server.url + "/", tls=http_server.client(new)))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await http_server.get(server.url + "/", tls=http_server.client(old))


async def test_a_client_certificate_lets_in_until_its_authority_is_changed(tmp_path: Path) -> None:
    servers, clients, others = trustme.CA(), trustme.CA(), trustme.CA()
    certificate, key = http_server.write_certificate(tmp_path, servers)
    authorities = tmp_path / "ca.crt"
    clients.cert_pem.write_to_path(str(authorities))
    serving = Serving(certificate=certificate, private_key=key, client_ca=authorities)
    async with http_server.opened(serving) as server:
        known, nobody = http_server.client(servers, shows=clients), http_server.client(servers)
        assert (await http_server.get(server.url + "/api/hpas", tls=known)) == (200, "[]")
        assert (await http_server.get(server.url + "/api/hpas", tls=nobody)) == (401, "401: Unauthorized")
        assert (await http_server.get(server.url + "/livez", tls=nobody))[0] == 200
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
            await http_server.get(server.url + "/", tls=http_server.client(servers, shows=others))
        others.cert_pem.write_to_path(str(authorities))
        await server.refresh()
        assert (await http_server.get(server.url + "/", tls=http_server.client(servers, shows=others)))[0] == 200
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
            await http_server.get(server.url + "/", tls=known)


@pytest.mark.parametrize("field", ["certificate", "private_key", "client_ca"])
async def test_a_file_that_is_not_there_is_named_with_its_setting(tmp_path: Path, field: str) -> None:
    certificate, key = http_server.write_certificate(tmp_path, authority := trustme.CA())
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    files = {"certificate": certificate, "private_key": key, "client_ca": tmp_path / "ca.crt"}
    setting = next(setting for setting, name in SERVING.items() if name == field)
    with pytest.raises(ServeError, match=rf"^{setting}: .*/none\.pem: No such file"):
        async with http_server.opened(Serving(**{**files, field: tmp_path / "none.pem"})):
            pass


async def test_files_that_are_no_good_are_named_with_their_settings(tmp_path: Path) -> None:
    certificate, key = http_server.write_certificate(tmp_path, trustme.CA())
    (tmp_path / "odd.pem").write_text("nothing")
    with pytest.raises(ServeError, match=r"^tls_cert_file .*, tls_private_key_file .*odd\.pem: cannot be used for TLS"):
        async with http_server.opened(Serving(certificate=certificate, private_key=tmp_path / "odd.pem")):
            pass
    with pytest.raises(ServeError, match=r"^client_ca_file: .*odd\.pem holds no certificate authorities"):
        async with http_server.opened(
            Serving(certificate=certificate, private_key=key, client_ca=tmp_path / "odd.pem")
        ):
            pass


class Hasty(SystemClock):
    """Waits a thousandth of what it is asked to."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 1000)


async def test_files_are_looked_at_without_being_asked(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    certificate, key = http_server.write_certificate(tmp_path, old)
    async with http_server.opened(Serving(certificate=certificate, private_key=key), clock=Hasty()) as server:
        http_server.write_certificate(tmp_path, new)
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(aiohttp.ClientConnectorCertificateError):
                    status, _ = await http_server.get(server.url + "/", tls=http_server.client(new))
                    break
    assert status == 200


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not there")
def test_the_loop_of_the_daemon_follows_the_files_too(tmp_path: Path) -> None:
    """TLS is uvloop's own there."""
    old, new, clients = trustme.CA(), trustme.CA(), trustme.CA()
    certificate, key = http_server.write_certificate(tmp_path, old)
    authorities = tmp_path / "ca.crt"
    clients.cert_pem.write_to_path(str(authorities))

    async def main() -> list[int]:
        serving = Serving(certificate=certificate, private_key=key, client_ca=authorities)
        async with http_server.opened(serving) as server:
            before = await http_server.get(server.url + "/", tls=http_server.client(old, shows=clients))
            stranger = await http_server.get(server.url + "/", tls=http_server.client(old))
            await asyncio.to_thread(http_server.write_certificate, tmp_path, new)
            await server.refresh()
            after = await http_server.get(server.url + "/", tls=http_server.client(new, shows=clients))
        return [before[0], stranger[0], after[0]]

    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        assert runner.run(main()) == [200, 401, 200]
