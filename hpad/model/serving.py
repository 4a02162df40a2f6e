"""How the windows over HTTP are guarded: TLS, and who may look."""

from pathlib import Path

import msgspec


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Neither TLS nor authentication by default, as befits a window that listens on loopback.

    `certificate` and `private_key` (PEM files): serve TLS; they are read anew when they change. Each of the following
    is a way to be let in, and any of those that are set suffices: `client_ca` (PEM file): a certificate signed by one
    of these authorities; `token_file`: one of the bearer tokens in that file, a line each; `review`: a bearer token
    that the cluster accepts (TokenReview), of a user that may `get` the path as a non-resource URL
    (SubjectAccessReview).
    """

    certificate: Path | None = None
    private_key: Path | None = None
    client_ca: Path | None = None
    token_file: Path | None = None
    review: bool = False

    @property
    def guarded(self) -> bool:
        """Whether one has to show who one is; probes never have to."""
        return self.client_ca is not None or self.token_file is not None or self.review


def problems(serving: Serving, host: str) -> list[str]:
    """What does not go together, a sentence each that begins with a field's name; `host` is what is listened on."""
    found = []
    if serving.certificate is not None and serving.private_key is None:
        found.append("private_key: is missing: the certificate is of no use without its key")
    if serving.private_key is not None and serving.certificate is None:
        found.append("certificate: is missing: the private key is of no use without it")
    if serving.client_ca is not None and serving.certificate is None:
        found.append("client_ca: client certificates are shown over TLS alone: set the certificate, too")
    tokens = serving.token_file is not None or serving.review
    if tokens and serving.certificate is None and host not in ("127.0.0.1", "::1", "localhost"):
        field = "token_file" if serving.token_file is not None else "review"
        found.append(f"{field}: tokens would cross the network readable by all: set the certificate, too")
    return found
