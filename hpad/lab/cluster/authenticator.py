"""Authenticates, impersonates and authorizes each request."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from multidict import CIMultiDictProxy

from hpad.lab.cluster import errors, rbac, users
from hpad.lab.cluster.attributes import Attributes

IMPERSONATE = "impersonate"


@dataclass(frozen=True, slots=True)
class Authenticator:
    """With `known` None there is no authentication: every request is that of the administrator."""

    authorizer: rbac.Authorizer
    known: users.Users | None = None

    def authenticate(
        self,
        headers: CIMultiDictProxy[str],
        certificate: Mapping[str, Any] | None,
        what: Attributes,
    ) -> users.User:
        """Returns the user of an authorized request; raises ApiError 400, 401 or 403."""
        known = self.known
        user = users.ADMINISTRATOR if known is None else known.of_request(headers, certificate)
        user = self._impersonated(user, headers, what)
        self._check(user, what)
        return user

    def _check(self, user: users.User, what: Attributes) -> None:
        verdict = self.authorizer.authorize(user, what)
        if not verdict.allowed:
            raise errors.forbidden(what, user.name, verdict.reason)

    def _impersonated(self, user: users.User, headers: CIMultiDictProxy[str], what: Attributes) -> users.User:
        """Returns the impersonated user; raises ApiError 400 without a user name, 403 if impersonation is forbidden.

        The error is that of constrained impersonation (KEP-5284), which the API server checks last.
        """
        name, groups = headers.get("Impersonate-User", ""), headers.getall("Impersonate-Group", [])
        if not name and not groups:
            return user
        if not name:
            raise errors.bad_request("groups are to be impersonated without a user name")
        account = _account(name)
        requested = [account or Attributes(IMPERSONATE, resource="users", name=name)]
        requested += [Attributes(IMPERSONATE, resource="groups", name=group) for group in groups]
        if not all(self.authorizer.authorize(user, each).allowed for each in requested):
            mode = "serviceaccount" if account else "user-info"
            self._check(user, replace(what, verb=f"{IMPERSONATE}-on:{mode}:{what.verb}"))
            self._check(user, replace(requested[0], verb=f"{IMPERSONATE}:{mode}"))
        return users.named(name, *groups)


def _account(name: str) -> Attributes | None:
    """Returns the attributes of impersonating a service account; None for the name of another user."""
    if not name.startswith("system:serviceaccount:") or name.count(":") != 3:
        return None
    _, _, namespace, account = name.split(":")
    return Attributes(IMPERSONATE, resource="serviceaccounts", namespace=namespace, name=account)
