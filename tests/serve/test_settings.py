"""The settings of TLS and authentication."""

from pathlib import Path

import pytest

from hpad import settings
from hpad.settings.model import Serving


def test_the_settings_of_authentication(tmp_path: Path) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text("listen: 0.0.0.0:8473\ntls_cert_file: /tls/crt\nlisten_review: true\n")
    environ = {"HPAD_TLS_PRIVATE_KEY_FILE": "/tls/key"}
    loaded = settings.load(file, environ, {"listen_token_file": ("--listen-token-file", "/tls/tokens")})
    assert loaded.serving == Serving(
        certificate=Path("/tls/crt"),
        private_key=Path("/tls/key"),
        token_file=Path("/tls/tokens"),
        review=True,
    )


def test_loopback_needs_no_authentication_by_default() -> None:
    loaded = settings.load(None, {}, {})
    assert loaded.serving == Serving()
    assert loaded.listen == ("127.0.0.1", 8473)


def test_tokens_need_tls_except_on_loopback() -> None:
    environ = {"HPAD_LISTEN": "0.0.0.0:8473", "HPAD_LISTEN_TOKEN_FILE": "/tokens"}
    with pytest.raises(settings.SettingsError, match=r"^HPAD_LISTEN_TOKEN_FILE: .* set the certificate"):
        settings.load(None, environ, {})
