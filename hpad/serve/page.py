"""The status page and the rows of the JSON API.

A row holds what the API shows of one HPA, as JSON-like builtins; rows are sorted by namespace and name. The page is one
table without scripts, and everything in it is escaped.
"""

import asyncio
import base64
import hashlib
import html
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from hpad import __version__
from hpad.api.hpa import HorizontalPodAutoscaler, to_builtins
from hpad.api.text import harmless
from hpad.engine.conditions import ABLE_TO_SCALE, COMPETING_WRITERS, FALSE, SCALING_ACTIVE
from hpad.store.memory import Store

_STYLE = """
:root {
  color-scheme: light dark;
  --back: #ffffff; --text: #1c2733; --quiet: #566472; --link: #0b57d0; --trouble: #a3241b; --line: #dde3ea;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14191f; --text: #dfe6ee; --quiet: #9dabb9; --link: #8ab4f8; --trouble: #ff9d94; --line: #2c3640;
  }
}
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem; color: var(--text); background: var(--back) }
h1 { margin: 0 0 .3rem; font-size: 1.5rem }
p { margin: .3rem 0 }
a, a:visited { color: var(--link) }
.quiet, th { color: var(--quiet) }
.mark { border: 1px solid; border-radius: .3rem; padding: 0 .4rem; font-weight: 600 }
.trouble td.decision, .note { color: var(--trouble) }
table { border-collapse: collapse; width: 100%; margin-top: 1rem }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { font-weight: 600 }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
td { max-width: 20rem; overflow-wrap: break-word }
td.decision { min-width: 16rem; max-width: none; overflow-wrap: anywhere }
time { color: var(--quiet); font-variant-numeric: tabular-nums; margin-right: .4rem }
@media (max-width: 48rem) {
  body { margin: 1rem }
  thead { display: none }
  tr { display: block; border-bottom: 1px solid var(--line); padding: .6rem 0 }
  td, td.number { display: inline-block; text-align: left; border: 0; padding: 0 1rem .1rem 0; max-width: 100% }
  td.name, td.decision { display: block; min-width: 0 }
  td.name { font-weight: 600 }
  td[data-label]::before { content: attr(data-label) " "; color: var(--quiet) }
}
"""
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Allows only the page's own style, whatever the names of HPAs contain."""

_PAGE = string.Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="15"><title>hpad</title>
<style>$style</style></head><body>
<h1>hpad</h1>
<p>$doing</p>
<p class="quiet">$facts &middot; <a href="/api/hpas">HPAs as JSON</a> &middot; <a href="/api/sources">sources</a>
&middot; <a href="/metrics">metrics</a></p>
$notes
<table>
<thead><tr><th>HPA</th><th>Target</th><th class="number">Min</th><th class="number">Max</th>
<th class="number">Replicas</th><th>Last decision</th></tr></thead>
<tbody>
$rows
</tbody></table></body></html>
""")
_ROW = string.Template(
    '<tr class="$health"><td class="name">$hpa</td><td data-label="scales">$target</td>'
    '<td class="number" data-label="min">$least</td><td class="number" data-label="max">$most</td>'
    '<td class="number" data-label="replicas">$replicas</td>'
    '<td class="decision"><time datetime="$time" title="$time">$clock</time>$decision</td></tr>'
)
_DRY_RUN = "dry run: hpad decides, but writes nothing to the cluster"


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """The head of the page: `doing` as a sentence (None: the number of HPAs), and `facts` in a few words each."""

    doing: str | None = None
    facts: tuple[str, ...] = ()
    dry_run: bool = False


PLAIN: Final = Mode()


def render(rows: Sequence[Mapping[str, Any]], notes: Iterable[str], mode: Mode = PLAIN) -> str:
    """Returns the page as HTML. `notes` are problems, shown above the table."""
    doing = _text(mode.doing or f"{len(rows)} HPA{'' if len(rows) == 1 else 's'}")
    mark = f'<span class="mark">{_DRY_RUN}</span> ' if mode.dry_run else ""
    return _PAGE.substitute(
        style=_STYLE,
        doing=mark + doing,
        facts=" &middot; ".join(map(_text, mode.facts or (f"version {__version__}",))),
        notes="\n".join(f'<p class="note">{_text(note)}</p>' for note in notes),
        rows="\n".join(map(_row, rows)) or '<tr><td colspan="6" class="quiet">No HPA yet.</td></tr>',
    )


def _row(row: Mapping[str, Any]) -> str:
    last = row["lastDecision"] or {"time": "", "sentence": "none here yet", "error": None}
    competing = [each["message"] for each in row["conditions"] if each["type"] == COMPETING_WRITERS]
    cells = {
        "health": "trouble" if last["error"] or competing else "well",
        "hpa": f"{row['namespace']}/{row['name']}",
        "target": f"{row['target']['kind']}/{row['target']['name']}",
        "least": row["minReplicas"],
        "most": row["maxReplicas"],
        "replicas": _replicas(row),
        "time": last["time"],
        "clock": f"{last['time'][11:19]}Z" if last["time"] else "",
        "decision": "; ".join([last["sentence"], *(each for each in competing if each not in last["sentence"])]),
    }
    return _ROW.substitute({name: _text(str(value)) for name, value in cells.items()})


def _replicas(row: Mapping[str, Any]) -> str:
    """Returns the current count, with the desired one if that was decided.

    If the last decision or write failed, `desiredReplicas` is 0 or from an earlier decision, and is not shown. Before
    the first read of the target the current count is unknown, although the status says 0.
    """
    current, desired = row["currentReplicas"], row["desiredReplicas"]
    statuses = {each["type"]: each.get("status") for each in row["conditions"]}
    if not current and SCALING_ACTIVE not in statuses:
        return "?"
    failed = FALSE in (statuses.get(ABLE_TO_SCALE), statuses.get(SCALING_ACTIVE))
    undecided = not desired and SCALING_ACTIVE not in statuses
    return str(current) if failed or undecided or current == desired else f"{current} → {desired}"


def _text(text: str) -> str:
    """Escapes markup, and control characters such as those that change the direction of text."""
    return html.escape(harmless(text))


class HpaSource(Protocol):
    def values(self) -> Iterable[HorizontalPodAutoscaler]: ...


async def rows(source: HpaSource, store: Store, *, dry_run: bool = False) -> list[dict[str, Any]]:
    """Returns one row per HPA. A thread builds them, so that thousands do not block the event loop."""
    found = sorted(source.values(), key=lambda hpa: hpa.metadata.key)
    return await asyncio.to_thread(lambda: [row(hpa, store, dry_run=dry_run) for hpa in found])


def row(hpa: HorizontalPodAutoscaler, store: Store, *, dry_run: bool = False) -> dict[str, Any]:
    """Returns the row of one HPA. `lastDecision` is None before the first decision.

    With `dryRun` hpad writes nothing: status and decision are what they would be.
    """
    key, spec = hpa.metadata.key, hpa.spec
    memory = store.get(key)
    status = memory.status or hpa.status
    last = memory.last
    return {
        "namespace": key.namespace,
        "name": key.name,
        "dryRun": dry_run,
        "target": {"kind": spec.scale_target_ref.kind, "name": spec.scale_target_ref.name},
        "minReplicas": spec.min_replicas if spec.min_replicas is not None else 1,
        "maxReplicas": spec.max_replicas,
        "metrics": to_builtins(spec.metrics or ()),
        "currentReplicas": status.current_replicas,
        "desiredReplicas": status.desired_replicas,
        "currentMetrics": to_builtins(status.current_metrics or ()),
        "conditions": to_builtins(status.conditions),
        "lastScaleTime": to_builtins(status.last_scale_time),
        "lastDecision": None
        if last is None
        else {"time": to_builtins(last.at), "sentence": last.sentence, "error": last.error},
    }
