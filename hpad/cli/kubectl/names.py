"""Names of HPAs on the command line: `web`, `hpa/web`, or the target as `deployment/web`."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hpad.api.text import shown
from hpad.cli.output import WrongUse

_HPA: Final = ("hpa", "horizontalpodautoscaler", "horizontalpodautoscalers")
_SHORT: Final = {
    "deploy": "deployment",
    "sts": "statefulset",
    "rs": "replicaset",
    "rc": "replicationcontroller",
}


class Named(NamedTuple):
    """An HPA by its name; or by its target, if `kind` is not empty: the kind in lower case."""

    name: str
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}" if self.kind else self.name

    def matches(self, summary: Mapping[str, Any]) -> bool:
        """Returns whether a summary of the API is that of this HPA."""
        if not self.kind:
            return bool(summary["name"] == self.name)
        target = summary["target"]
        return bool(target["name"] == self.name and self.kind in (kind := target["kind"].lower(), f"{kind}s"))


def parse(text: str) -> Named:
    """Parses the name of an HPA; raises Failure."""
    kind, slash, name = text.rpartition("/")
    kind = kind.lower().partition(".")[0]
    if not name or "/" in kind or (slash and not kind):
        raise WrongUse(f"{shown(text)} is not of the form NAME, hpa/NAME or deployment/NAME")
    return Named(name) if not slash or kind in _HPA else Named(name, _SHORT.get(kind, kind))
