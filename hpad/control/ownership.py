"""Whose an HPA is: the one question that leader election and shards answer."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from hpad.kube import client
from hpad.model.key import Key


class NotOurs(Exception):
    """Something was about to be written for an HPA that is not ours, or no longer; nothing was."""


class Owner(Protocol):
    """Asked before each reconcile and again right before each write, so the answer must cost nothing."""

    def owns(self, key: Key) -> bool:
        """Whether this process, at this very moment, is the one that acts on the HPA."""
        ...


class Everything:
    """The owner where there is only one hpad."""

    def owns(self, key: Key) -> bool:
        return True


EVERYTHING = Everything()


def require(owner: Owner, key: Key) -> None:
    """Raise NotOurs unless the HPA is ours."""
    if not owner.owns(key):
        raise NotOurs(str(key))


@contextmanager
def writing(owner: Owner, key: Key) -> Iterator[None]:
    """What is written for the HPA inside is sent only while it is ours; raises NotOurs else."""
    require(owner, key)
    with client.only_if(functools.partial(require, owner, key)):
        yield
