"""The settings of TLS and authentication of the HTTP server, and the rules between them."""

from pathlib import Path
from typing import Annotated

import msgspec

from hpad.api.problem import Problem
from hpad.settings import parsers
from hpad.settings.rows import Group, Setting


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """TLS and authentication of the HTTP server. By default it has neither, and listens on loopback.

    `certificate` and `private_key` turn TLS on. Each of the other fields turns on one way to authenticate, and a client
    needs one of them. `review`: a bearer token that the cluster accepts (TokenReview), of a user that may `get` the
    path as a non-resource URL (SubjectAccessReview).
    """

    certificate: Annotated[
        Path | None,
        Setting(
            parsers.path,
            "serve TLS with this certificate (PEM), reloaded when it changes",
            name="tls_cert_file",
            group=Group.SERVING,
        ),
    ] = None
    private_key: Annotated[
        Path | None,
        Setting(
            parsers.path,
            "private key of tls_cert_file (PEM)",
            name="tls_private_key_file",
            group=Group.SERVING,
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        Setting(
            parsers.path,
            "admit clients with one of the bearer tokens in this file, one per line",
            name="listen_token_file",
            group=Group.SERVING,
        ),
    ] = None
    review: Annotated[
        bool,
        Setting(
            parsers.flag,
            "admit clients whose bearer token the cluster allows to `get` the path (a non-resource URL); needs the "
            "ClusterRole system:auth-delegator (config/rbac/review)",
            name="listen_review",
            group=Group.SERVING,
        ),
    ] = False

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the certificate, its key and the tokens, as far as they are configured."""
        return tuple(file for file in (self.certificate, self.private_key, self.token_file) if file is not None)


def serving_problems(serving: Serving, host: str) -> list[Problem]:
    """Returns combinations of fields that cannot work; `host` is the address to listen on."""
    found: list[Problem] = []
    if serving.certificate is not None and serving.private_key is None:
        found.append(Problem("private_key", "is missing: a certificate needs its key"))
    if serving.private_key is not None and serving.certificate is None:
        found.append(Problem("certificate", "is missing: a private key needs its certificate"))
    tokens = serving.token_file is not None or serving.review
    if tokens and serving.certificate is None and host not in ("127.0.0.1", "::1", "localhost"):
        field = "token_file" if serving.token_file is not None else "review"
        found.append(Problem(field, "tokens would cross the network unencrypted: set the certificate, too"))
    return found
