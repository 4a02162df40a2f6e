"""TLS towards the management API: trusted authorities and client certificates."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from support.brokers import PATIENT
from support.http_stub import Stub, server_tls, serving

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample
from hpad_adapters import rabbitmq

QUEUE = {"name": "a", "messages": 5, "messages_ready": 3, "messages_unacknowledged": 2}


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("hpad").private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    return authority


@pytest.fixture
async def url(authority: trustme.CA, stub: Stub) -> AsyncIterator[str]:
    """A broker that requires a client certificate of the authority."""
    stub.answers(QUEUE)
    async with serving(stub.handle, tls=server_tls(authority, clients=authority)) as url:
        yield url


async def asked(rabbit, **options: object) -> Answer:
    [answer] = await rabbitmq.RabbitMQ(rabbitmq.Settings(**PATIENT, **options), rabbit).answer(
        [testing.external("queue_messages", "queue=a")]
    )
    return answer


async def test_a_private_authority_and_a_client_certificate(rabbit, url, tmp_path):
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


async def test_renewed_certificates_are_used(rabbit, url, authority, tmp_path):
    other = trustme.CA()
    other.cert_pem.write_to_path(tmp_path / "trusted.pem")
    other.issue_cert("hpad").private_key_and_cert_chain_pem.write_to_path(tmp_path / "used.pem")
    files = {"ca": str(tmp_path / "trusted.pem"), "cert": str(tmp_path / "used.pem")}
    source = rabbitmq.RabbitMQ(rabbitmq.Settings(url=url, **PATIENT, **files), rabbit)
    query = testing.external("queue_messages", "queue=a")
    for new, used in (("ca.pem", "trusted.pem"), ("client.pem", "used.pem")):
        [answer] = await source.answer([query])
        assert isinstance(answer, AdapterError)
        (tmp_path / new).replace(tmp_path / used)
    [answer] = await source.answer([query])
    assert isinstance(answer, ExternalSample), answer


async def test_an_unknown_certificate_is_not_trusted(rabbit, url, tmp_path):
    answer = await asked(rabbit, url=url, cert=str(tmp_path / "client.pem"))
    assert isinstance(answer, AdapterError)
    assert answer.message.startswith(f"rabbitmq at {url} has a certificate that is not trusted (")


async def test_an_unknown_certificate_is_accepted_if_insecure_is_set(rabbit, url, tmp_path):
    answer = await asked(rabbit, url=url, cert=str(tmp_path / "client.pem"), insecure=True)
    assert isinstance(answer, ExternalSample)


async def test_a_missing_client_certificate_is_an_error(rabbit, url, tmp_path):
    answer = await asked(rabbit, url=url, ca=str(tmp_path / "ca.pem"))
    assert isinstance(answer, AdapterError)
    assert answer.message.startswith(f"rabbitmq at {url} ")
