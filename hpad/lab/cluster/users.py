"""Who sends a request: bearer tokens and client certificates as users, and those who show neither."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from hpad.lab.cluster import errors

AUTHENTICATED: Final = "system:authenticated"
MASTERS: Final = "system:masters"
"""The group that may do everything, whatever roles there are."""


@dataclass(frozen=True, slots=True)
class User:
    """Somebody, as RBAC knows him."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    def info(self) -> dict[str, Any]:
        """The `UserInfo` that reviews show."""
        uid = {"uid": self.uid} if self.uid else {}
        groups = {"groups": list(self.groups)} if self.groups else {}
        return {"username": self.name, **uid, **groups}


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))
ADMINISTRATOR: Final = User("hpad-lab-admin", (MASTERS, AUTHENTICATED))


def named(name: str, *groups: str) -> User:
    """A user that has shown who he is; a service account (`system:serviceaccount:NAMESPACE:NAME`) is in its groups."""
    if name == ANONYMOUS.name:
        return ANONYMOUS
    if name.startswith("system:serviceaccount:") and not groups:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{name.split(':')[2]}")
    return User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))))


def service_account(namespace: str, name: str) -> User:
    return named(f"system:serviceaccount:{namespace}:{name}")


class Users:
    """The tokens that are known, as kube-apiserver reads them from its --token-auth-file."""

    def __init__(self, tokens: Mapping[str, User] | None = None) -> None:
        self._tokens = {token: _authenticated(user) for token, user in (tokens or {}).items()}
        self._issued: dict[User, str] = {}

    def token(self, user: User) -> str:
        """A token of this user's, the same one each time."""
        user = _authenticated(user)
        if user not in self._issued:
            self._issued[user] = secrets.token_hex(16)
            self._tokens[self._issued[user]] = user
        return self._issued[user]

    def of_token(self, token: str) -> User | None:
        return self._tokens.get(token)

    def of_request(self, headers: Mapping[str, str], certificate: Mapping[str, Any] | None) -> User:
        """The user by his token, else by his certificate, else nobody; raises ApiError 401 for an unknown token."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            user = self.of_token(token.strip())
            if user is None:
                raise errors.unauthorized()
            return user
        return of_certificate(certificate) if certificate else ANONYMOUS


def of_certificate(certificate: Mapping[str, Any]) -> User:
    """The user of a client certificate, as `ssl` shows it: the common name, its organizations as groups."""
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for key, value in subject if key == "commonName"]
    return named(names[0] if names else "", *(value for key, value in subject if key == "organizationName"))


def _authenticated(user: User) -> User:
    return user if AUTHENTICATED in user.groups else replace(user, groups=(*user.groups, AUTHENTICATED))
