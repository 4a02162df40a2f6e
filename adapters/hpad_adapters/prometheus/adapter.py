"""The adapter: questions to queries, queries to the server, rows to samples."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from hpad.adapter import EXTERNAL, OBJECT, PODS, SOURCE_TYPES, AdapterError, Answer, Context, Query, parse_duration
from hpad_adapters.prometheus import batches, configuration, history, lookups, rules, samples, settings
from hpad_adapters.prometheus import queries as own
from hpad_adapters.prometheus.connection import Connection
from hpad_adapters.prometheus.queries import Ask


class Prometheus:
    """Metrics of every type straight from a Prometheus server, by PromQL or by a prometheus-adapter configuration."""

    serves = frozenset(SOURCE_TYPES)
    metrics: Mapping[str, Sequence[str]] = {}
    Settings = settings.Settings

    def __init__(self, settings: settings.Settings, context: Context) -> None:
        """Raises AdapterError for a template or a rule that is wrong, except in `rules_file`, which is read later."""
        self._settings = settings
        self._context = context
        self._own = own.Own(settings.metrics)
        self.metrics = self._offered()
        self._rules = None if settings.rules_file else self._compiled()
        self._connection = Connection(settings, context)
        self._discovery = lookups.Discovery(self._connection, context, parse_duration(settings.discovery_ttl))
        self._pods = lookups.Pods(context)

    @staticmethod
    def flaws(settings: settings.Settings) -> Iterator[tuple[rules.Place, str]]:
        """What is wrong with the queries and the rules; reads `rules_file`, so it blocks."""
        yield from own.flaws(settings.metrics)
        field = "rules_file" if settings.rules_file else "rules"
        try:
            read = configuration.read(settings)
        except AdapterError as error:
            yield (field,), error.message.removeprefix(f"{field}: ")
            return
        file = settings.rules_file
        for place, text in rules.flaws(read, settings, file or "rules"):
            yield ((field,), f"{file}: {rules.written(place)}: {text}") if file else ((field, *place), text)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """One query to the server per rule and namespace where the rule allows it, else one per question."""
        try:
            await self._read_rules()
        except AdapterError as error:
            return [error] * len(queries)
        distinct = dict.fromkeys(queries)
        names = await self._pods.names(query for query in distinct if self._needs_pods(query))
        answers: dict[Query, Answer] = {}
        asks: list[Ask] = []
        for query in distinct:
            try:
                asks.append(await self._ask(query, names))
            except AdapterError as error:
                answers[query] = error
        planned = batches.planned(asks, batches.MOST_AT_ONCE[self._settings.method])
        for given in await asyncio.gather(*map(self._answers, planned)):
            answers |= given
        return [answers[query] for query in queries]

    async def explain(self, query: Query) -> str:
        """The PromQL that the query alone becomes, every variable filled in; raises AdapterError."""
        (batch,) = batches.planned([await self._asked(query)], 1)
        return batch.expression()

    async def history(self, query: Query, times: Sequence[datetime]) -> list[Answer]:
        """What the metric was at each of these times, asked as a range query; of pods, those that are there now."""
        (batch,) = batches.planned([await self._asked(query)], 1)
        return await history.answers(self._connection, batch, times)

    def group(self, query: Query) -> tuple[str, str, str]:
        """Questions for the same metric of a namespace can be one query to the server."""
        return query.namespace, query.type, query.name

    def personal(self, query: Query) -> bool:
        """Whether the query to the server is made of the HPA's name, its labels or its target."""
        return self._own.personal(query)

    async def aclose(self) -> None:
        """Nothing to let go of: the session is hpad's."""

    def _offered(self) -> dict[str, Sequence[str]]:
        """What comes here unasked: never the resource metrics of all HPAs, only because there are rules."""
        offered: dict[str, Sequence[str]] = dict(self._own.names)
        if self._settings.rules_file or self._settings.rules:
            offered |= dict.fromkeys((PODS, OBJECT, EXTERNAL), ("*",))
        return offered

    def _compiled(self) -> rules.Rules:
        where = self._settings.rules_file or "rules"
        return rules.Rules(configuration.read(self._settings), self._settings, where)

    async def _read_rules(self) -> None:
        if self._rules is None:
            self._rules = await asyncio.to_thread(self._compiled)

    async def _asked(self, query: Query) -> Ask:
        """The question for one metric on its own; raises AdapterError."""
        await self._read_rules()
        names = await self._pods.names([query] if self._needs_pods(query) else [])
        return await self._ask(query, names)

    def _needs_pods(self, query: Query) -> bool:
        return query.type in own.OF_PODS and self._own.needs_pods(query)

    async def _ask(self, query: Query, names: Mapping[lookups.Wanted, frozenset[str] | AdapterError]) -> Ask:
        """The question for a metric; raises AdapterError."""
        assert self._rules is not None
        meant = names[query.namespace, query.pods] if query.pods is not None and self._needs_pods(query) else None
        if isinstance(meant, AdapterError):
            raise meant
        ask = self._own.ask(query, meant)
        if ask is None and query.type in rules.RESOURCES:
            ask = self._rules.resource(query, meant or frozenset())
        elif ask is None:
            chosen = await self._discovery.choose(self._rules.find(query), query.name)
            ask = chosen and rules.ask(*chosen, query, meant)
        if ask is None:
            raise lookups.unknown(query.name, query.type, self._own.names.get(query.type, ()))
        if ask.names is not None and not ask.names:
            raise AdapterError(f'no pods in "{query.namespace}" match the target\'s selector "{query.pods}"', "spec")
        return ask

    async def _answers(self, batch: batches.Batch) -> dict[Query, Answer]:
        """Ask, and take the answer apart; an error is that of all the batch's questions."""
        now = self._context.clock.now()
        try:
            series = await self._connection.query(batch.expression(), now.timestamp())
            parts = list(batch.answers(series))
        except AdapterError as error:
            return dict.fromkeys((ask.query for ask in batch.asks), error)
        answers: dict[Query, Answer] = {}
        for ask, rows in parts:
            try:
                answers[ask.query] = samples.sample(ask, rows, now)
            except AdapterError as error:
                answers[ask.query] = error
        return answers
