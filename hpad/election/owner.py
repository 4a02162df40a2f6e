"""What has to hold for a write: the HPA belongs to this process, and is still what was decided on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.engine import fallback_policy
from hpad.kube import client

Current = Callable[[], HorizontalPodAutoscaler | None]
"""The HPA as it is known at this moment, None: it is gone. Must cost nothing."""


class NotOwned(Exception):
    """Something was about to be written for an HPA that is not ours, or no longer; nothing was."""


class Edited(Exception):
    """Something was about to be written for an HPA that is not what was decided on any more; nothing was."""


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


class Permit(NamedTuple):
    """The right to write what was decided for `hpa`. Without `current` the HPA cannot change."""

    owner: Owner
    hpa: HorizontalPodAutoscaler
    current: Current | None = None

    def require(self) -> None:
        """Raise NotOwned unless the HPA is ours, and Edited if it is not the one that was decided on any more."""
        if not self.owner.owns(self.hpa.metadata.key):
            raise NotOwned(str(self.hpa.metadata.key))
        if self.current is not None and not decides_alike(self.hpa, self.current()):
            raise Edited(str(self.hpa.metadata.key))

    @property
    def is_same(self) -> bool:
        """Whether the HPA is still there, edited or not; one made anew under its name is another."""
        found = self.hpa if self.current is None else self.current()
        return found is not None and found.metadata.uid == self.hpa.metadata.uid

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What is written inside is sent only while `require` raises nothing, however long it waits for its turn."""
        self.require()
        with client.only_if(self.require):
            yield


def decides_alike(one: HorizontalPodAutoscaler, other: HorizontalPodAutoscaler | None) -> bool:
    """Whether a decision for the one holds for the other: all that it is made of, and nothing that changes by it.

    Not the resourceVersion, which each status moves; and not the generation, which HPAs do not have in all versions of
    Kubernetes.
    """
    return (
        other is not None
        and one.metadata.uid == other.metadata.uid
        and (one.spec is other.spec or one.spec == other.spec)
        and one.metadata.labels == other.metadata.labels
        and _annotations(one) == _annotations(other)
    )


def _annotations(hpa: HorizontalPodAutoscaler) -> list[str | None]:
    """Those that say what is to be done; others are written by all sorts of tools."""
    return [(hpa.metadata.annotations or {}).get(name) for name in fallback_policy.ANNOTATIONS]
