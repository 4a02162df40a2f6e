"""Writes the reference pages `docs/reference/*.md` from the code: `python -m tools.reference`, or `make docs`.

`--check` writes nothing and exits with status 1 if a page is not current.
"""

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from hpad.cli import COMMANDS, main, schema
from hpad.engine import fallback_policy
from hpad.telemetry import Telemetry

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
_NOTE = "<!-- Written by `make docs` from the code; changes made here are lost. -->"
_BUILT_IN = (
    *("metrics-server", "custom-metrics", "external-metrics"),
    *("rabbitmq", "prometheus", "redis", "http-json", "cron", "static"),
)

_ANNOTATIONS = {
    fallback_policy.FALLBACK: (
        "a policy, or `METRIC=POLICY,…`",
        "what replaces the proposal of a metric that cannot be read",
    ),
    fallback_policy.FAILURE_DURATION: (
        "a whole number, 180 by default",
        "seconds that a metric must have failed before its fallback applies",
    ),
    fallback_policy.ACTIVATION: (
        "a number, or `METRIC=NUMBER,…`",
        "where `minReplicas` is 0: a target stays at zero until the reading is above this number",
    ),
}
_POLICIES = """The policies of `hpad.io/fallback`:

- `hold`: no scale-down, as in Kubernetes;
- `replicas:5`: the metric asks for 5 replicas; the largest proposal of all metrics still wins;
- `last-good:10m`: the metric asks for what it asked for last, for ten minutes at most;
- `ignore`: the other metrics decide alone.

` after 60s` behind a policy replaces the failure duration for that policy. `hpad check` finds mistakes in annotations.
The condition ScalingActive shows the failure all the same. A source may have a `fallback` for all HPAs that name none
([settings](settings.md)).
"""

KUBERNETES, OWN = "Kubernetes", "hpad"
CONDITIONS = {
    "AbleToScale": (KUBERNETES, "whether the target's scale can be read and written"),
    "ScalingActive": (KUBERNETES, "whether the metrics allow a decision"),
    "ScalingLimited": (KUBERNETES, "whether a limit changed the desired count"),
    "ScaledToZero": (KUBERNETES, "whether the HPA took the last replica (gate HPAScaleToZero)"),
    "ExternalMetricFallbackActive": (KUBERNETES, "a fallback replaces an External metric (KEP-5679)"),
    "CompetingWriters": (OWN, "another client writes the replicas of the target, or the status of the HPA"),
}
REASONS = {
    "SucceededGetScale": ("AbleToScale", "the scale was read"),
    "FailedGetScale": ("AbleToScale", "the scale could not be read"),
    "ReadyForNewScale": ("AbleToScale", "no stabilization window holds the count"),
    "ScaleDownStabilized": ("AbleToScale", "a larger recommendation within the scale-down window holds the count"),
    "ScaleUpStabilized": ("AbleToScale", "a smaller recommendation within the scale-up window holds the count"),
    "SucceededRescale": ("AbleToScale", "the new count was written"),
    "FailedUpdateScale": ("AbleToScale", "the new count could not be written"),
    "StaleCache": ("AbleToScale", "a watch received nothing for `max_staleness`: hpad does not decide on old data"),
    "DryRun": ("AbleToScale", "the count was decided and, with `--dry-run`, not written"),
    "CompetingHPA": ("AbleToScale", "another HPA scales the target, so the count was not written"),
    "ValidMetricFound": ("ScalingActive", "the metric named in the message decided"),
    "ScalingDisabled": ("ScalingActive", "the target was set to zero replicas"),
    "ScaleToZeroDisabled": ("ScalingActive, ScalingLimited", "minReplicas is 0 and the gate HPAScaleToZero is off"),
    "InvalidSelector": ("ScalingActive", "the selector of the target is missing or cannot be read"),
    "AmbiguousSelector": ("ScalingActive", "several HPAs select the same pods"),
    "InvalidMetricSourceType": ("ScalingActive", "a metric has a type that Kubernetes does not know"),
    "FailedGetResourceMetric": ("ScalingActive", "a Resource metric could not be read"),
    "FailedGetContainerResourceMetric": ("ScalingActive", "a ContainerResource metric could not be read"),
    "FailedGetPodsMetric": ("ScalingActive", "a Pods metric could not be read"),
    "FailedGetObjectMetric": ("ScalingActive", "an Object metric could not be read"),
    "FailedGetExternalMetric": ("ScalingActive", "an External metric could not be read"),
    "DesiredWithinRange": ("ScalingLimited", "no limit applies"),
    "TooFewReplicas": ("ScalingLimited", "minReplicas applies"),
    "TooManyReplicas": ("ScalingLimited", "maxReplicas applies"),
    "ScaleUpLimit": ("ScalingLimited", "a scale-up policy, or the limit of twice the count, applies"),
    "ScaleDownLimit": ("ScalingLimited", "a scale-down policy applies"),
    "NotScaledToZero": ("ScaledToZero", "the target has replicas, or another client set it to zero"),
    "FallbackActive": ("ExternalMetricFallbackActive", "the fallback named in the message is in force"),
    "NoFallback": ("ExternalMetricFallbackActive", "no fallback is in force"),
    "OtherHPA": ("CompetingWriters", "another HPA scales the same target"),
    "ScaleWritten": ("CompetingWriters", "another client set the replicas after hpad"),
    "StatusWritten": ("CompetingWriters", "another client writes the status of the HPA"),
}
EVENTS = {
    "SuccessfulRescale": ("Normal", "the new count was written; the message says why"),
    "FailedRescale": ("Warning", "the new count could not be written"),
    "FailedGetScale": ("Warning", "the scale could not be read"),
    "FailedComputeMetricsReplicas": ("Warning", "no metric, or only some, could be computed"),
    "FailedUpdateStatus": ("Warning", "the status could not be written"),
    "SelectorRequired": ("Warning", "the scale has no selector"),
    "InvalidSelector": ("Warning", "the selector of the target cannot be read"),
    "AmbiguousSelector": ("Warning", "several HPAs select the same pods"),
    "FailedGet…Metric": ("Warning", "a metric of this type could not be read"),
    "InvalidMetricSourceType": ("Warning", "a metric has a type that Kubernetes does not know"),
    "StaleCache": ("Warning", "hpad does not decide on old data"),
    "InvalidAnnotation": ("Warning", "an annotation under `hpad.io/` cannot be read"),
    "LeaderElection": ("Normal", "on the Lease: another process leads now"),
}


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    return {
        "settings.md": _settings(),
        "cli.md": _cli(),
        "annotations.md": _annotations(),
        "series.md": _series(),
        "conditions.md": _conditions(),
        "sources.md": _sources(),
    }


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", _NOTE, *(part.strip("\n") for part in parts)]) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _settings() -> str:
    form = schema.document()
    rows = []
    for name, setting in form["properties"].items():
        default = setting.get("default")
        shown = (
            ""
            if default in (None, "", [], {})
            else f"`{str(default).lower() if default in (True, False) else default}`"
        )
        rows.append([f"`{name}`", shown, f"`HPAD_{name.upper()}`", setting.get("description", "")])
    parts = [
        "Settings of the daemon, in a YAML file (`hpad run --config FILE`), in the environment, or as flags"
        " ([commands and flags](cli.md)). Flags override the environment, which overrides the file. `hpad config show`"
        " prints the settings in force; [`config/hpad.yaml`](../../config/hpad.yaml) is a sample with every setting.",
        _table(["setting", "default", "environment variable", "meaning"], rows),
        "## Of every source\n\nIn `sources.NAME`, beside the settings of its adapter ([metric sources](sources.md)):",
        _meanings(schema.SOURCE),
        "`limits` of a source:",
        _meanings(schema.LIMITS),
        "`match` of a source or a route:",
        _meanings(schema.MATCH),
    ]
    return _page("Settings", *parts)


def _as_yaml(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return text.removesuffix("...\n").strip()


def _meanings(meanings: Any) -> str:
    return _table(["setting", "meaning"], [[f"`{name}`", text] for name, text in meanings.items()])


def _parsers() -> Iterator[argparse.ArgumentParser]:
    """The parsers of all commands, each followed by those of its own subcommands."""
    program = argparse.ArgumentParser(prog="hpad")
    commands = program.add_subparsers()
    for name in COMMANDS:
        importlib.import_module(f"hpad.cli.{name}").add_parser(commands)
    for parser in commands.choices.values():
        yield parser
        yield from _below(parser)


def _below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield inner
                yield from _below(inner)


def _cli() -> str:
    parts = ["Exit status: 0 success, 1 a failure that one line on stderr explains, 2 wrong use, 130 an interrupt."]
    for parser in _parsers():
        parts.append(f"## `{parser.prog}`")
        if parser.description:
            parts.append(" ".join(parser.description.split()))
        rows = [_flag(action) for action in parser._actions if action.help != argparse.SUPPRESS and _is_shown(action)]
        if rows:
            parts.append(_table(["argument", "meaning"], rows))
    return _page("Commands and flags", *parts)


def _is_shown(action: argparse.Action) -> bool:
    return not isinstance(action, argparse._SubParsersAction | argparse._HelpAction)


def _flag(action: argparse.Action) -> list[str]:
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if action.choices and not action.metavar:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    shown = " ".join(value) if isinstance(value, tuple) else str(value or "")
    if not action.option_strings:
        return [f"`{shown}`", _help(action)]
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    return [names if action.nargs == 0 else f"{names} `{shown}`", _help(action)]


def _help(action: argparse.Action) -> str:
    return " ".join((action.help or "").replace("%%", "%").split())


def _annotations() -> str:
    if set(_ANNOTATIONS) != set(fallback_policy.ANNOTATIONS):
        raise SystemExit(
            f"tools/reference.py lacks annotations: {set(fallback_policy.ANNOTATIONS) ^ set(_ANNOTATIONS)}"
        )
    rows = [[f"`{name}`", value, text] for name, (value, text) in _ANNOTATIONS.items()]
    text = "Annotations on an HPA set what the API has no field for. An HPA without them works as in Kubernetes."
    return _page("Annotations", text, _table(["annotation", "value", "meaning"], rows), _POLICIES)


def _series() -> str:
    rows = {}
    for collector in Telemetry()._registry._collector_to_names:
        if hasattr(collector, "_labelnames"):
            kind, name = type(collector).__name__.lower(), collector._name
            rows[name + ("_total" if kind == "counter" else "")] = (
                kind,
                collector._labelnames,
                collector._documentation,
            )
        elif type(collector).__module__.startswith("hpad"):
            for family in collector.collect():
                name = family.name + ("_total" if family.type == "counter" else "")
                labels = getattr(family, "_labelnames", ()) or ()
                rows[name] = (family.type, labels, family.documentation)
    table = [
        [f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), text]
        for name, (kind, labels, text) in sorted(rows.items())
    ]
    intro = (
        "`/metrics` serves these series. Those that begin with `horizontal_pod_autoscaler_controller_`, `workqueue_`,"
        " `rest_client_` and `leader_election_` have the names that Kubernetes' own components use. `process_*` are"
        " series of the Prometheus client library."
    )
    return _page("Series", intro, _table(["series", "type", "labels", "meaning"], table))


def _conditions() -> str:
    conditions = [[f"`{name}`", origin, text] for name, (origin, text) in CONDITIONS.items()]
    reasons = [[f"`{name}`", where, text] for name, (where, text) in REASONS.items()]
    events = [[f"`{name}`", kind, text] for name, (kind, text) in EVENTS.items()]
    return _page(
        "Conditions and events",
        "Conditions in the status of an HPA. Texts and reasons of Kubernetes are those of Kubernetes 1.36.",
        _table(["condition", "defined by", "meaning"], conditions),
        "## Reasons",
        _table(["reason", "condition", "meaning"], reasons),
        "## Events",
        "On the HPA; `event_component` ([settings](settings.md)) names their component.",
        _table(["reason", "type", "meaning"], events),
    )


def _sources() -> str:
    os.environ["COLUMNS"] = "120"
    parts = ["Built-in adapters, as `hpad adapters describe NAME` prints them. Packages may add others."]
    for name in _BUILT_IN:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            main(["adapters", "describe", name])
        text = out.getvalue().split("\n", 1)[1].strip("\n")
        parts += [f"## `{name}`", f"```text\n{text}\n```"]
    return _page("Metric sources", *parts)


def stale(folder: Path = FOLDER) -> list[str]:
    """The names of the pages that differ from what the code says."""
    return [
        name
        for name, text in pages().items()
        if not (folder / name).is_file() or (folder / name).read_text("utf-8") != text
    ]


def run(arguments: Sequence[str]) -> int:
    """Writes the pages, or with `--check` compares them."""
    if list(arguments) == ["--check"]:
        if found := stale():
            print(f"not current: {', '.join(found)}; run `make docs`", file=sys.stderr)
        return int(bool(found))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
