"""Names of HPAs on the command line (`web`, `hpa/web`, `autoscaler/web`, or the target as `deployment/web`), and the
HPAs they mean."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from hpad.api.text import shown
from hpad.cli.fetch import AUTOSCALER, AUTOSCALERS, Hpa, HpadReader, local_name, summaries
from hpad.cli.output import Failure, WrongUse

KIND: Final = "HorizontalPodAutoscaler"
FORMS: Final = "NAME, hpa/NAME, autoscaler/NAME or deployment/NAME"
_HPA: Final = ("hpa", "horizontalpodautoscaler", "horizontalpodautoscalers")
_SHORT: Final = {
    "deploy": "deployment",
    "sts": "statefulset",
    "rs": "replicaset",
    "rc": "replicationcontroller",
}


class Named(NamedTuple):
    """An HPA by its name; or by its target, if `kind` is not empty: the kind in lower case.

    `of` is the kind of the HPA itself, HorizontalPodAutoscaler or Autoscaler; "" is either.
    """

    name: str
    kind: str = ""
    of: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}" if self.kind else self.name

    def matches(self, summary: Mapping[str, Any]) -> bool:
        """Returns whether a summary of the API is that of this HPA."""
        if not self.kind:
            return bool(summary["name"] == self.name) and self.of in ("", summary.get("kind", KIND))
        target = summary["target"]
        return bool(target["name"] == self.name and self.kind in (kind := target["kind"].lower(), f"{kind}s"))


def parse(text: str) -> Named:
    """Parses a name on the command line; raises Failure."""
    kind, slash, name = text.rpartition("/")
    kind = kind.lower().partition(".")[0]
    if not name or "/" in kind or (slash and not kind):
        raise WrongUse(f"{shown(text)} is not of the form {FORMS}")
    if not slash:
        return Named(name)
    of = KIND if kind in _HPA else AUTOSCALER if kind in AUTOSCALERS else ""
    return Named(name, of=of) if of else Named(name, _SHORT.get(kind, kind))


Summary = dict[str, Any]


def chosen(reader: HpadReader, namespace: str | None, named: Sequence[Named], selector: str = "") -> list[Summary]:
    """Returns the HPAs with these names, in their order; without names those that the selector matches.

    Raises Failure for a missing one.
    """
    if not named:
        return list(summaries(reader, namespace=namespace, selector=selector))
    found: list[Summary] = []
    for each in named:
        by_name = summaries(reader, namespace=namespace, search=each.name)
        matching = [summary for summary in by_name if each.matches(summary)]
        if not matching:
            what = AUTOSCALER if each.of == AUTOSCALER else "HPA"
            raise Failure(f"no {what} {'of ' if each.kind else ''}{each} {_where(namespace)}")
        found += matching
    return found


def _where(namespace: str | None) -> str:
    return "in any namespace" if namespace is None else f"in namespace {namespace}"


def only(reader: HpadReader, namespace: str | None, named: Named) -> Hpa:
    """Returns one HPA; raises Failure if there is none or more than one."""
    found = chosen(reader, namespace, [named])
    if len(found) > 1:
        listed = ", ".join(f"{each['namespace']}/{local_name(each)}" for each in found)
        near = {each["namespace"] for each in found} == {found[0]["namespace"]}
        how = "by its kind (hpa/NAME or autoscaler/NAME)" if near else "with its namespace (-n)"
        raise Failure(f"several HPAs match {named}: {listed}; name one of them {how}")
    return Hpa(reader, found[0]["namespace"], found[0]["name"], found[0].get("kind", KIND))
