"""Which label of a rule's series names which kind of object: `resources` of a prometheus-adapter rule."""

import re
from collections.abc import Mapping

import msgspec

from hpad.adapter import AdapterError
from hpad_adapters.prometheus import template

_PLAIN = "<<.Resource>>"
"""The label of rules that say nothing about it, as some of prometheus-adapter's own examples do."""
_FIELDS = frozenset({"Group", "Resource"})
_UNFIT_IN_LABELS = re.compile(r"[.-]")


class GroupResource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of objects as rules write it: singular or plural, the group empty for the core API."""

    resource: str
    group: str = ""


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`template`: the label for any kind; `overrides`: label -> kind; `namespaced` false: of all namespaces."""

    template: str = ""
    overrides: dict[str, GroupResource] = {}
    namespaced: bool = True


class Labels:
    """Asked for the label of a kind."""

    def __init__(self, resources: Resources) -> None:
        """Raises template.TemplateError."""
        self._overrides: Mapping[str, GroupResource] = resources.overrides
        text = resources.template or ("" if resources.overrides else _PLAIN)
        self._template = template.compiled(text, _FIELDS) if text else None

    def knows(self, resource: str, group: str) -> bool:
        """Whether there is a label for such objects."""
        try:
            return bool(self.label(resource, group))
        except AdapterError:
            return False

    def label(self, resource: str, group: str = "") -> str:
        """The label that holds names of such objects; `resource` in the singular. Raises AdapterError (blame "spec").

        An override of another group is taken if none of the right one is there: Ingresses moved from group extensions.
        """
        named = {each.group: label for label, each in self._overrides.items() if _same(resource, each.resource)}
        if named:
            return named[group] if group in named else next(iter(named.values()))
        if self._template is None:
            raise AdapterError(f'the rule has no label for the resource "{resource}" (resources: overrides)', "spec")
        return self._template.render({"Group": _UNFIT_IN_LABELS.sub("_", group), "Resource": resource})


def singular(kind: str) -> str:
    """The resource of a kind: "Ingress" is "ingress"."""
    return kind.lower()


def _same(resource: str, written: str) -> bool:
    """Whether `written` is this resource in the singular or plural, however English forms it."""
    word = written.lower()
    plurals = {f"{resource}s", f"{resource}es", f"{resource[:-1]}ies"}
    return word == resource or word in plurals
