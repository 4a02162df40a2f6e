"""`hpad simulate`: what an HPA would do with a synthetic load on a model of its workload."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from hpad.api import numbers
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.text import shown
from hpad.cli import manifest, output, simulate_text, simulate_workload
from hpad.cli.output import WrongUse
from hpad.cli.simulate_text import SharedSimulation, SimulatedHpa, SimulatedTurn
from hpad.engine.annotations import PLAIN
from hpad.engine.budget import Shares
from hpad.engine.examine import MOST_VALUES
from hpad.engine.words import span
from hpad.settings import Settings
from hpad.simulation import load
from hpad.simulation.load import FORMS, Load, LoadError
from hpad.simulation.outcome import OutcomeTally, wanted
from hpad.simulation.run import SharedLedger, Simulated, TurnDriver, simulate_together

HELP: Final = "what an HPA would do with a synthetic load"
DESCRIPTION: Final = """\
Simulate an HPA: run the decisions of hpad against a model of a workload under a synthetic load. Several HPAs of a
manifest run together and share the budgets of --config. Nothing is read from a cluster, and nothing is written. All
parameters of the model are part of the output; docs/simulate.md describes them."""

EPILOG: Final = f"""\
loads (several add up):
  {f"{chr(10)}  ".join(FORMS)}

examples:
  hpad simulate web.yaml --load step:from=50,to=400,at=10m
                                        a service under a step of the load, for an hour
  hpad simulate web.yaml --load sine:mean=300,amplitude=250,period=24h --for 72h --noise 0.05 --price 0.04
  hpad simulate worker.yaml --workload queue --service-time 2s --load spikes:height=20,every=30m,for=2m
  hpad simulate web.yaml --load constant:400 --set spec.maxReplicas=5 --explain
  hpad simulate shop.yaml --config hpad.yaml --load web=constant:400 --load mail=sine:mean=90,amplitude=80,period=1h
                                        two HPAs of one file, each with its load

exit status: 0 success, 1 the manifest or a setting is wrong, 2 wrong use"""

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The time at which a simulation begins, if none is given."""
_MOST_TURNS: Final = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST", help='file with the HPA; "-" is standard input')
    manifest.add_arguments(parser)
    parser.add_argument(
        "--load",
        metavar="[HPA=]LOAD",
        action="append",
        required=True,
        help="units of work per second, of every HPA or of the one with this name; may be repeated",
    )
    parser.add_argument(
        "--for",
        dest="length",
        metavar="DURATION",
        type=numbers.some_seconds,
        default=None,
        help="simulated time (default: 1h, or the length of a CSV file)",
    )
    parser.add_argument("--period", metavar="DURATION", type=numbers.some_seconds, default=None, help=manifest.PERIOD)
    parser.add_argument(
        "--replicas", metavar="N", type=numbers.whole(1), default=None, help="at the start (default: minReplicas)"
    )
    parser.add_argument(
        "--seed", metavar="N", type=numbers.whole(0), default=1, help="of everything random (default: 1)"
    )
    parser.add_argument("--price", metavar="PRICE", type=numbers.number, default=None, help="of one replica per hour")
    parser.add_argument("--explain", action="store_true", help="print every decision, also those that keep the count")
    output.add_format(parser, "text", "json", "csv")
    simulate_workload.add_arguments(parser)
    output.add_color(parser)


def run(args: argparse.Namespace) -> int:
    try:
        found = _simulated(args)
    except LoadError as error:
        raise WrongUse(str(error)) from None
    if args.output == "csv":
        simulate_text.print_csv(found)
    elif args.output == "json":
        output.print_value(simulate_text.simulation_json(found, args.price), "json")
    else:
        lines = simulate_text.simulation_lines(found, START, args.price, explain=args.explain)
        output.show_lines(lines, args.color)
    return 0


class _Member:
    """One HPA of the simulation, with its load, its workload and what it does."""

    def __init__(
        self, hpa: HorizontalPodAutoscaler, loads: Sequence[str], place: int, args: argparse.Namespace
    ) -> None:
        self.hpa = hpa
        self.key = str(hpa.key)
        self._loads = loads
        self._seed = args.seed + place
        self.loads = [load.parse(text, self._seed + index) for index, text in enumerate(loads)]
        self.offered: Load = load.together(self.loads)
        self.turns: list[SimulatedTurn] = []
        self.notes = manifest.mistakes(hpa)

    def start(self, recipe: simulate_workload.LoadRecipe, args: argparse.Namespace, settings: Settings) -> None:
        """Makes the workload."""
        self.period = manifest.period(args.period, self.hpa, settings.sync_period)
        self._replicas = args.replicas or max(1, self.hpa.spec.min_replicas or 1)
        if self._replicas > MOST_VALUES:
            raise WrongUse(f"{self.key}: {self._replicas} replicas at the start; at most {MOST_VALUES} are simulated")
        self.workload, self._model = recipe.make(self.hpa, self.offered, START, self._replicas, self._seed)
        self._tally = OutcomeTally(settings.tunables.downscale_stabilization)

    def add(self, turn: Simulated) -> None:
        """Adds a turn to the figures and to what is shown."""
        (done, ready, after), view = turn, turn.done.view
        self._tally.add(view, done.decision, after, wanted(view, done.decision))
        seconds = round((view.now - START).total_seconds())
        time, offered = f"{view.now:%Y-%m-%dT%H:%M:%SZ}", round(self.offered(seconds), 3)
        said = done.sentence
        self.turns.append(SimulatedTurn(time, seconds, offered, view.replicas, ready, after, said))

    def result(self, length: timedelta) -> SimulatedHpa:
        """Returns what is shown."""
        time = f"{_span(length)}, {output.counted(len(self.turns), 'reconcile')}"
        parameters = {"load": " + ".join(self._loads), "time": time, **self._model}
        more = {"replicas at the start": self._replicas, "period": _span(self.period), "seed": self._seed}
        parameters |= {name: str(value) for name, value in more.items()}
        return SimulatedHpa(self.key, parameters, self.turns, self._tally.outcome(), self.notes)


def _simulated(args: argparse.Namespace) -> SharedSimulation:
    """Runs the HPAs of a manifest under one clock. Raises Failure, LoadError and SettingsError."""
    settings, ledger = manifest.tunables(args), SharedLedger()
    members, length = _members(args, settings)
    for member in members.values():
        _join(ledger, member, settings)
    drivers = {
        key: (TurnDriver(member.hpa, member.workload, settings.tunables, ledger.ask), member.period)
        for key, member in members.items()
    }
    for key, turn in simulate_together(drivers, start=START, length=length):
        members[key].add(turn)
        ledger.note(key, turn)
    uses = ledger.finish(START + length).values()
    return SharedSimulation([each.result(length) for each in members.values()], list(uses))


def _members(args: argparse.Namespace, settings: Settings) -> tuple[dict[str, _Member], timedelta]:
    """Returns the HPAs by their keys, each with its workload, and the simulated time."""
    hpas = manifest.read_all(args.manifest, args.hpa, args.changes, settings)
    loads = zip(hpas, _loads(args.load, hpas), strict=True)
    members = {str(hpa.key): _Member(hpa, own, place, args) for place, (hpa, own) in enumerate(loads)}
    given = [each for member in members.values() for each in member.loads]
    length = timedelta(seconds=_length(args.length, given))
    recipe = simulate_workload.LoadRecipe(args)
    for member in members.values():
        member.start(recipe, args, settings)
        if length < member.period:
            raise WrongUse(f"--for: {_span(length)} is shorter than the period of {member.key}, {_span(member.period)}")
    turns = sum(length // member.period for member in members.values())
    if turns > _MOST_TURNS:
        raise WrongUse(f"--for: {turns} reconciles; at most {_MOST_TURNS} are simulated")
    return members, length


def _join(ledger: SharedLedger, member: _Member, settings: Settings) -> None:
    named = PLAIN.budget(member.hpa)
    if named is None:
        return
    name, priority = named
    found = next((each for each in settings.budgets if each.name == name), None)
    if found is None:
        member.notes.append(f"--config has no budget {shown(name)}: nothing limits this HPA here")
        return
    namespace = member.hpa.metadata.namespace
    error = "" if found.is_for(namespace) else f"it is not for HPAs of the namespace {namespace}"
    ledger.join(member.hpa, priority, member.workload, Shares(name, found.amount, found.unit, error=error))


def _loads(texts: Sequence[str], hpas: Sequence[HorizontalPodAutoscaler]) -> list[list[str]]:
    """Returns the loads of each HPA. Raises Failure for a load of no HPA, or an HPA without one."""
    found: list[list[str]] = [[] for _ in hpas]
    for text in texts:
        before, equals, own = text.partition("=")
        # An equals sign behind the colon belongs to the load, as in constant:rate=40.
        name, own = (before, own) if equals and ":" not in before else (None, text)
        chosen = [loads for loads, hpa in zip(found, hpas, strict=True) if name in (None, *manifest.names(hpa))]
        if not chosen:
            known = ", ".join(str(hpa.key) for hpa in hpas)
            raise WrongUse(f"--load {shown(text)}: there is no HPA {shown(name)}; there are {known}")
        for loads in chosen:
            loads.append(own)
    for loads, hpa in zip(found, hpas, strict=True):
        if not loads:
            raise WrongUse(f"--load: the HPA {hpa.key} has none; --load {hpa.metadata.name}=LOAD gives it one")
    return found


def _length(given: float | None, loads: Sequence[load.Load]) -> float:
    if given is not None:
        return given
    recorded = [each.length for each in loads if isinstance(each, load.LoadSeries) and each.length > 0]
    return max(recorded, default=3600.0)


def _span(length: timedelta) -> str:
    return span(length.total_seconds())
