"""Certificates of a kubeconfig: those of the certificate authority, and client certificates."""

import asyncio
import base64
import dataclasses
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID
from support.kubeconfigs import PATH, SECRET, encoded, kubeconfig, load, refused
from support.scripted_server import Script, says, serving

from hpad.kube.auth.kubeconfig import load_cluster_config
from hpad.kube.client import Client
from hpad.kube.errors import ApiError

pytestmark = pytest.mark.usefixtures("home")


async def test_client_certificates_and_a_private_authority_are_used(tmp_path, authority, clock, monkeypatch):
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
    async with serving(script.handle, tls=server) as port:
        url = f"HTTPS://127.0.0.1:{port}"
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
    """The server closes the connection; the next request uses the certificate that the files hold by then."""
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
    async with serving(script.handle, tls=server) as port:
        user = {"client-certificate": "hpad.crt", "client-key": "hpad.key"}
        trust = {"certificate-authority-data": encoded(authority.cert_pem)}
        url = f"https://127.0.0.1:{port}"
        loaded = await load(kubeconfig(tmp_path / "k", server=url, user=user, cluster=trust))
        async with Client(loaded, clock) as client:
            await asyncio.to_thread(issued, second)
            with pytest.raises(ApiError):
                await client.request("GET", PATH)
            assert await client.request("GET", PATH) == b"known"


def plain_certificates():
    """A CA without key identifiers, as old clusters have, and a server certificate with its key, all as PEM."""

    def built(name, issuer, key, signer, extension):
        began = datetime.now(UTC) - timedelta(hours=1)
        draft = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key.public_key())
        draft = draft.serial_number(x509.random_serial_number()).not_valid_before(began)
        return draft.not_valid_after(began + timedelta(days=2)).add_extension(extension, True).sign(signer, SHA256())

    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("old-ca", "api")]
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in names]
    host = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    authority = built(names[0], names[0], keys[0], keys[0], x509.BasicConstraints(True, None))
    server = built(names[1], names[0], keys[1], keys[0], host)
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return authority.public_bytes(Encoding.PEM), server.public_bytes(Encoding.PEM) + keys[1].private_bytes(*form)


async def test_an_authority_without_key_identifiers_is_accepted(tmp_path, clock):
    """client-go accepts it as well; Python 3.13 and later refuse it by default."""
    trusted, own = plain_certificates()
    (tmp_path / "server.pem").write_bytes(own)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "server.pem")
    script = Script()
    script.on("GET", PATH, says(b"known"))
    async with serving(script.handle, tls=server) as port:
        trust = {"certificate-authority-data": base64.b64encode(trusted).decode()}
        loaded = await load(kubeconfig(tmp_path / "k", server=f"https://127.0.0.1:{port}", cluster=trust))
        async with Client(loaded, clock) as client:
            assert await client.request("GET", PATH) == b"known"
        strict = ssl.create_default_context(cadata=trusted.decode())
        strict.verify_flags |= ssl.VERIFY_X509_STRICT
        async with Client(dataclasses.replace(loaded, ssl=strict), clock) as client:
            with pytest.raises(ApiError, match="certificate"):
                await client.request("GET", PATH)


def test_a_plugin_is_not_run_beside_a_client_certificate(tmp_path, authority):
    """As in kubectl 1.32 (client-go, plugin/pkg/client/auth/exec: UpdateTransportConfig)."""
    mine = authority.issue_cert("hpad@example.org")
    mine.cert_chain_pems[0].write_to_path(str(tmp_path / "hpad.crt"))
    mine.private_key_pem.write_to_path(str(tmp_path / "hpad.key"))
    plugin = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./missing"}}
    key = {"client-key-data": encoded(mine.private_key_pem)}
    path = kubeconfig(tmp_path / "k", server="https://a", user={"client-certificate": "hpad.crt", **key, **plugin})
    assert load_cluster_config(path).certified
    alone = kubeconfig(tmp_path / "k", server="https://a", user={"client-certificate": "hpad.crt", **plugin})
    assert "missing cannot be run" in refused(alone), "a certificate without a key is no credential"


def test_an_error_names_the_unusable_certificate(tmp_path, authority):
    path, https = tmp_path / "k", "https://127.0.0.1:1"
    (tmp_path / "ca.crt").write_text("nothing of the kind")
    message = refused(kubeconfig(path, server=https, cluster={"certificate-authority": "ca.crt"}))
    assert "authority (certificate-authority or certificate-authority-data) cannot be used" in message
    mine = authority.issue_cert("hpad@example.org")
    certificate = {"client-certificate-data": encoded(mine.cert_chain_pems[0])}
    assert "; there is no client-key" in refused(kubeconfig(path, server=https, user=certificate))
    locked = load_pem_private_key(mine.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode())
    )
    key = {"client-key-data": base64.b64encode(locked).decode()}
    assert "the client key is encrypted" in refused(kubeconfig(path, server=https, user=certificate | key))
    missing = kubeconfig(path, server=https, user={"token": SECRET}, cluster={"certificate-authority": "none.crt"})
    assert f"certificate-authority: {tmp_path / 'none.crt'}: no such file" in refused(missing)
