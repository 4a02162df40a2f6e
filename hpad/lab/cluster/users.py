"""Users of the cluster, authenticated by bearer token or client certificate, else anonymous."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from hpad.lab.cluster import errors

AUTHENTICATED: Final = "system:authenticated"
MASTERS: Final = "system:masters"
"""The group that is always allowed everything, without any role."""


@dataclass(frozen=True, slots=True)
class User:
    """A user of RBAC."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    def info(self) -> dict[str, Any]:
        """Returns the `UserInfo` of reviews."""
        uid = {"uid": self.uid} if self.uid else {}
        groups = {"groups": list(self.groups)} if self.groups else {}
        return {"username": self.name, **uid, **groups}


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))
ADMINISTRATOR: Final = User("hpad-lab-admin", (MASTERS, AUTHENTICATED))


def named(name: str, *groups: str) -> User:
    """Returns an authenticated user; a service account (`system:serviceaccount:NAMESPACE:NAME`) gets its groups."""
    if name == ANONYMOUS.name:
        return ANONYMOUS
    if name.startswith("system:serviceaccount:") and not groups:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{name.split(':')[2]}")
    return User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))))


def service_account(namespace: str, name: str) -> User:
    return named(f"system:serviceaccount:{namespace}:{name}")


class Users:
    """The known tokens, like those of kube-apiserver's --token-auth-file."""

    def __init__(self, tokens: Mapping[str, User] | None = None) -> None:
        self._tokens = {token: _authenticated(user) for token, user in (tokens or {}).items()}
        self._issued: dict[User, str] = {}

    def token(self, user: User) -> str:
        """Returns the token of a user, the same at each call."""
        user = _authenticated(user)
        if user not in self._issued:
            self._issued[user] = secrets.token_hex(16)
            self._tokens[self._issued[user]] = user
        return self._issued[user]

    def of_token(self, token: str) -> User | None:
        return self._tokens.get(token)

    def of_request(self, headers: Mapping[str, str], certificate: Mapping[str, Any] | None) -> User:
        """Returns the user of the token, else of the certificate, else ANONYMOUS; raises ApiError 401."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            user = self.of_token(token.strip())
            if user is None:
                raise errors.unauthorized()
            return user
        return of_certificate(certificate) if certificate else ANONYMOUS


def of_certificate(certificate: Mapping[str, Any]) -> User:
    """Returns the user of a client certificate as `ssl` decodes it: name by commonName, groups by organizationName."""
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for key, value in subject if key == "commonName"]
    return named(names[0] if names else "", *(value for key, value in subject if key == "organizationName"))


def _authenticated(user: User) -> User:
    return user if AUTHENTICATED in user.groups else replace(user, groups=(*user.groups, AUTHENTICATED))
