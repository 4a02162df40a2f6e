"""Certificates: whom the adapter trusts, and how it shows its own."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample
from hpad_adapters import rabbitmq

QUEUE = {"name": "a", "messages": 5, "messages_ready": 3, "messages_unacknowledged": 2}
URL = "https://127.0.0.1:{port}"


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("hpad").private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    return authority


@pytest.fixture
async def url(authority) -> AsyncIterator[str]:
    """A broker that wants to see a certificate of ours."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED

    async def handle(request: web.BaseRequest) -> web.Response:
        return web.json_response(QUEUE)

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield URL.format(port=runner.addresses[0][1])
    await runner.cleanup()


async def asked(rabbit, **given: object) -> Answer:
    [answer] = await rabbitmq.RabbitMQ(rabbitmq.Settings(**given), rabbit).answer(
        [testing.external("queue_messages", "queue=a")]
    )
    return answer


async def test_an_authority_of_ones_own_and_a_client_certificate(rabbit, url, tmp_path):
    answer = await asked(rabbit, url=url, ca=str(tmp_path / "ca.pem"), cert=str(tmp_path / "client.pem"))
    assert isinstance(answer, ExternalSample)
    assert answer.values == (5_000,)


def locked(whole: bytes, password: bytes) -> bytes:
    """The private key of a PEM file, encrypted."""
    key = serialization.load_pem_private_key(whole, None)
    form, encrypted = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, form, encrypted)


@pytest.mark.parametrize(("password", "opens"), [("s3same", True), ("s3cret", False)])
async def test_a_key_may_have_a_password(rabbit, url, tmp_path, password, opens):
    (tmp_path / "client.key").write_bytes(locked((tmp_path / "client.pem").read_bytes(), b"s3same"))
    files = {"ca": "ca.pem", "cert": "client.pem", "key": "client.key"}
    paths = {name: str(tmp_path / file) for name, file in files.items()}
    answer = await asked(rabbit, url=url, **paths, key_password=password)
    assert isinstance(answer, ExternalSample) == opens
    assert password not in str(answer)


async def test_certificates_that_were_renewed_are_taken_up(rabbit, url, authority, tmp_path):
    other = trustme.CA()
    other.cert_pem.write_to_path(tmp_path / "trusted.pem")
    other.issue_cert("hpad").private_key_and_cert_chain_pem.write_to_path(tmp_path / "shown.pem")
    files = {"ca": str(tmp_path / "trusted.pem"), "cert": str(tmp_path / "shown.pem")}
    source = rabbitmq.RabbitMQ(rabbitmq.Settings(url=url, **files), rabbit)
    query = testing.external("queue_messages", "queue=a")
    for new, held in (("ca.pem", "trusted.pem"), ("client.pem", "shown.pem")):
        [answer] = await source.answer([query])
        assert isinstance(answer, AdapterError)
        (tmp_path / new).replace(tmp_path / held)
    [answer] = await source.answer([query])
    assert isinstance(answer, ExternalSample), answer


async def test_an_unknown_certificate_is_not_trusted(rabbit, url, tmp_path):
    answer = await asked(rabbit, url=url, cert=str(tmp_path / "client.pem"))
    assert isinstance(answer, AdapterError)
    assert answer.message.startswith(f"rabbitmq at {url} has a certificate that is not trusted (")


async def test_an_unknown_certificate_is_taken_when_the_operator_says_so(rabbit, url, tmp_path):
    answer = await asked(rabbit, url=url, cert=str(tmp_path / "client.pem"), insecure=True)
    assert isinstance(answer, ExternalSample)


async def test_without_a_client_certificate_there_is_no_answer(rabbit, url, tmp_path):
    answer = await asked(rabbit, url=url, ca=str(tmp_path / "ca.pem"))
    assert isinstance(answer, AdapterError)
    assert answer.message.startswith(f"rabbitmq at {url} ")
