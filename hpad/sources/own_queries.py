"""Queries that Autoscalers bring along: which sources take them, and their parameters as the adapters get them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from hpad import settings
from hpad.adapter import EXTERNAL, AdapterError, Answer, Query, QueryDefinition
from hpad.api import settings_errors
from hpad.api.autoscaler import query_definition
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.problem import Problem
from hpad.api.sample import DEFINED
from hpad.api.text import meant
from hpad.sources import plugins
from hpad.sources.offers import Offer

A = TypeVar("A", bound=Answer)
_READ: Final = "read"
"""Where a definition of an Autoscaler keeps what was read of it: both have the same lifetime."""


class OwnQueries:
    """Reads the definitions of queries for the sources of `offers`.

    A definition keeps what was read of it, so that its parameters are checked once.
    """

    def __init__(self, offers: Iterable[Offer]) -> None:
        self._offers = {offer.source: offer for offer in offers}

    def source(self, query: Query, definition: QueryDefinition) -> str:
        """Returns the name of the source; raises AdapterError if it takes no queries of this namespace."""
        if self._kept(query, definition) is not None:  # its source is known to be open
            return definition.source
        offer, namespace = self._offers.get(definition.source), query.namespace
        if offer is None:
            opened = [each.source for each in self._offers.values() if each.takes_own(query)]
            near = meant(definition.source, opened)
            there = f'open to queries of namespace "{namespace}": {", ".join(opened) or "none"}'
            raise AdapterError(f'there is no source "{definition.source}"{near}; {there}', "spec")
        if not offer.admits(query):
            raise AdapterError(f'source "{offer.source}" is not offered to namespace "{namespace}"', "spec")
        if not offer.takes_own(query):
            needed = f"its configuration would need queries: {{namespaces: [{namespace}]}}"
            raise AdapterError(
                f'source "{offer.source}" is not open to queries of namespace "{namespace}": {needed}', "spec"
            )
        return offer.source

    def handed(self, query: Query, definition: QueryDefinition) -> Query:
        """Returns the query as the adapter of its source gets it; raises AdapterError, also for wrong parameters.

        The definition keeps it, so that the same object is asked for in each turn.
        """
        found = self._kept(query, definition)
        if found is None:
            self.source(query, definition)
            found = self._read(query, definition)
            # Not by the query, which holds the definition: structs without garbage collection must form no cycle.
            definition.__dict__[_READ] = (self, query.namespace, query.selector), found
        if isinstance(found, str):
            raise AdapterError(found, "spec")
        return found if query.members is None else msgspec.structs.replace(found, members=query.members)

    def _kept(self, query: Query, definition: QueryDefinition) -> Query | str | None:
        place, found = definition.__dict__.get(_READ, (None, None))
        return found if place == (self, query.namespace, query.selector) else None

    def _read(self, query: Query, definition: QueryDefinition) -> Query | str:
        """Returns the query, or what is wrong with its parameters."""
        metric = _metric(definition, self._offers[definition.source])
        if isinstance(metric, str):
            return metric
        read = QueryDefinition(definition.source, definition.text, metric)
        return msgspec.structs.replace(query, name=DEFINED, definition=read, members=None)


def _metric(definition: QueryDefinition, offer: Offer) -> msgspec.Struct | str:
    """Returns the parameters in the schema of the source's adapter, or what is wrong with them."""
    schema = offer.query_schema
    if isinstance(schema, str):
        return f'source "{offer.source}" takes no queries: {schema}'
    try:
        values: Mapping[str, Any] = msgspec.json.decode(definition.text)
        found = settings_errors.check(values, schema)
    except (msgspec.DecodeError, RecursionError):  # such as a number of thousands of digits
        return "parameters: cannot be read as JSON, or are nested too deeply"
    if found:
        return "; ".join(problem.text for problem in found)
    return msgspec.convert(values, schema)


def problems(
    autoscaler: HorizontalPodAutoscaler, sources: Sequence[settings.SourceSettings] | None
) -> Iterator[Problem]:
    """Yields what is wrong with the queries of an Autoscaler by itself, and for these sources (None: not known).

    Blocks: adapters are imported.
    """
    brought = autoscaler.spec.queries
    own = None if sources is None or not brought else OwnQueries(map(_offer, sources))
    for index, entry in enumerate(brought):
        definition, error = query_definition(entry.name, brought)
        if own is not None and definition is not None:
            namespace = autoscaler.metadata.namespace
            query = Query(type=EXTERNAL, namespace=namespace, name=entry.name, definition=definition)
            try:
                own.handed(query, definition)
            except AdapterError as refused:
                error = named(query, refused).message
        if error is not None:
            yield Problem(f"spec.queries[{index}]", error)


def _offer(source: settings.SourceSettings) -> Offer:
    """Returns what the source offers to queries of Autoscalers, without building it."""
    try:
        schema = plugins.query_schema(source, plugins.adapter_class(source.adapter))
    except AdapterError as error:
        schema = error.message
    return Offer(settings=source, query_schema=schema)


def named(query: Query, answer: A) -> A | AdapterError:
    """Returns the answer for the HPA that asked the query: an error names the query that it brought along."""
    if query.definition is None or not isinstance(answer, AdapterError):
        return answer
    text = answer.message.replace(f'"{DEFINED}"', f'"{query.name}"')
    text = f"spec.queries[{query.name}]: {text}"
    return AdapterError(text, answer.blame, lasting=answer.lasting, alive=answer.alive)
