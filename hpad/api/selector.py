"""Label selectors, parsed from a text (`app=web,tier in (a,b)`) or from the object of the API.

Sources: apimachinery, pkg/labels/selector.go: Parse, and metav1: LabelSelectorAsSelector; the canonical text and the
messages are those of Kubernetes.
"""

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from hpad.api import selector_syntax
from hpad.api.bounded_cache import bounded_cache
from hpad.api.selector_syntax import LONGEST as LONGEST
from hpad.api.selector_syntax import Operator as Operator
from hpad.api.selector_syntax import Requirement as Requirement
from hpad.api.selector_syntax import SelectorError as SelectorError
from hpad.api.selector_syntax import SelectorTooLarge as SelectorTooLarge
from hpad.api.text import quoted

_EXACT: Final = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS})
_OBJECT_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}
_NAMED: Final = {operator: name for name, operator in _OBJECT_OPERATORS.items()}


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Selector:
    """Requirements that must all be met, sorted by key. With `selectable` False it matches nothing."""

    requirements: tuple[Requirement, ...] = ()
    selectable: bool = True
    _equal: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)
    _other: tuple[Requirement, ...] = field(init=False, repr=False, compare=False)
    _needed: frozenset[str] = field(init=False, repr=False, compare=False)
    _absent: frozenset[str] = field(init=False, repr=False, compare=False)
    _valued: tuple[Requirement, ...] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        equal = tuple((term.key, term.values[0]) for term in self.requirements if term.operator in _EXACT)
        other = tuple(term for term in self.requirements if term.operator not in _EXACT)
        object.__setattr__(self, "_equal", equal)
        object.__setattr__(self, "_other", other)
        absent = frozenset([term.key for term in other if term.operator is Operator.DOES_NOT_EXIST])
        object.__setattr__(self, "_needed", frozenset([term.key for term in other if term.needs_label]))
        object.__setattr__(self, "_absent", absent)
        object.__setattr__(self, "_valued", tuple([term for term in other if term.values]))
        object.__setattr__(self, "_hash", hash((self.requirements, self.selectable)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def empty(self) -> bool:
        """Whether the selector matches everything."""
        return self.selectable and not self.requirements

    @property
    def contradiction(self) -> str:
        """The first label that no value and no absence can satisfy; "" if there is none."""
        terms: dict[str, list[Requirement]] = {}
        for term in self.requirements:
            terms.setdefault(term.key, []).append(term)
        return next((key for key, each in terms.items() if _exclude_each_other(each)), "")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Returns whether the selector matches an object with these labels."""
        for key, value in self._equal:
            if labels.get(key) != value:
                return False
        if self._other:
            # Sets first, since a pod may have thousands of labels, and a selector a hundred requirements.
            present = labels.keys()
            if not (present >= self._needed and present.isdisjoint(self._absent)):
                return False
            for term in self._valued:
                if not term.matches(labels):
                    return False
        return self.selectable

    def __str__(self) -> str:
        """Returns the canonical text; empty for the selectors of everything and of nothing."""
        return ",".join(map(str, self.requirements))


def _exclude_each_other(terms: list[Requirement]) -> bool:
    """Returns whether no value of one label, nor its absence, satisfies all; `<` and `>` are not judged."""
    allowed: set[str] | None = None
    refused: set[str] = set()
    for term in terms:
        if term.operator in _EXACT or term.operator is Operator.IN:
            allowed = set(term.values) if allowed is None else allowed & set(term.values)
        elif term.operator in (Operator.NOT_IN, Operator.NOT_EQUALS):
            refused |= set(term.values)
    if any(term.operator is Operator.DOES_NOT_EXIST for term in terms):
        return allowed is not None or any(term.operator is Operator.EXISTS for term in terms)
    return allowed is not None and not allowed - refused


EVERYTHING: Final = Selector()
NOTHING: Final = Selector(selectable=False)
TOO_LARGE: Final = "," * (LONGEST + 1)
"""The text that stands for a selector that is too large: `parse` refuses it."""
_PARSED_BYTES: Final = 20
"""What a parsed selector takes for each character of its text."""
_KNOWN: Final[weakref.WeakValueDictionary[str, Selector]] = weakref.WeakValueDictionary()


class LabelSelectorRequirement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`metav1.LabelSelectorRequirement`: the operator is In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`metav1.LabelSelector` of a metric."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


def from_object(selector: LabelSelector | None) -> Selector:
    """Returns the selector of an API object: of nothing for None, of everything for an empty one.

    Raises SelectorError. Source: apimachinery, metav1: LabelSelectorAsSelector.
    """
    if selector is None:
        return NOTHING
    requirements = [
        selector_syntax.checked(key, Operator.EQUALS, (value,)) for key, value in sorted(selector.match_labels.items())
    ]
    for expression in selector.match_expressions:
        operator = _OBJECT_OPERATORS.get(expression.operator)
        if operator is None:
            raise SelectorError(f"{quoted(expression.operator)} is not a valid label selector operator")
        requirements.append(selector_syntax.checked(expression.key, operator, expression.values))
    return _selector(requirements)


def to_object(selector: Selector) -> LabelSelector:
    """Returns the API object of a selector; of several values for one label, the last.

    Raises SelectorError for `!=`, `<` and `>`, which the object cannot express.
    """
    equal: dict[str, str] = {}
    expressions = []
    for term in selector.requirements:
        if term.operator in _EXACT:
            equal[term.key] = term.values[0]
        elif term.operator in _NAMED:
            expressions.append(LabelSelectorRequirement(term.key, _NAMED[term.operator], term.values))
        elif term.operator in selector_syntax.ORDER:
            raise SelectorError(f"{quoted(term.operator)} isn't supported in label selectors")
        else:
            raise SelectorError(f"{quoted(term.operator)} is not a valid label selector operator")
    return LabelSelector(equal, tuple(expressions))


def expressed(selector: Selector) -> LabelSelector:
    """Returns an API object of the same meaning, in which `!=` is NotIn, and a second value of a label is In.

    Raises SelectorError for `<` and `>`, which the object cannot express.
    """
    requirements: list[Requirement] = []
    for term in selector.requirements:
        operator = Operator.NOT_IN if term.operator is Operator.NOT_EQUALS else term.operator
        # matchLabels has room for one value of a label: a second one becomes an expression.
        if operator in _EXACT and any(term.key == other.key and other.operator in _EXACT for other in requirements):
            operator = Operator.IN
        requirements.append(Requirement(term.key, operator, term.values))
    return to_object(Selector(tuple(requirements)))


def go_plus_v(selector: LabelSelector | None) -> str:
    """Returns the object as Go's `%+v` prints it in the messages of the HPA controller."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.match_labels.items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{term.key},Operator:{term.operator},Values:[{' '.join(term.values)}],}},"
        for term in selector.match_expressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


@bounded_cache(lambda text: len(text) * _PARSED_BYTES, 1 << 20)
def parse(text: str) -> Selector:
    """Returns the selector of a text; an empty text selects everything. Raises SelectorError.

    A selector that is still in use is not parsed again.
    """
    # The weak references outlast the cache: with thousands of targets, each would be parsed again every period.
    known = _KNOWN.get(text)
    if known is None:
        known = _KNOWN[text] = _selector(selector_syntax.requirements(text))
    return known


def _selector(requirements: list[Requirement]) -> Selector:
    return Selector(tuple(sorted(requirements, key=lambda term: term.key))) if requirements else EVERYTHING
