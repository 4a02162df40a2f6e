"""The status page: one table, no script, everything escaped."""

import base64
import hashlib
import html
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpad.model.conditions import COMPETING_WRITERS

_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem; color: #1c2733; background: #fff }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid #dde3ea; vertical-align: top }
th { color: #5b6b7b; font-weight: 600 }
td.number { text-align: right; font-variant-numeric: tabular-nums }
tr.trouble td:last-child, .note { color: #a3241b }
@media (prefers-color-scheme: dark) {
  body { color: #dfe6ee; background: #14191f }
  th, td { border-color: #2c3640 }
  tr.trouble td:last-child, .note { color: #ff9d94 }
}
"""
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing but the page's own style may run or be fetched, whatever an HPA is called."""

_PAGE = string.Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="15"><title>hpad</title>
<style>$style</style></head><body>
<h1>hpad</h1>
<p>$count &middot; <a href="/api/hpas">JSON</a> &middot; <a href="/metrics">metrics</a></p>
$notes
<table>
<thead><tr><th>HPA</th><th>Target</th><th>Min</th><th>Max</th><th>Replicas</th><th>Last decision</th></tr></thead>
<tbody>
$rows
</tbody></table></body></html>
""")
_ROW = string.Template(
    '<tr class="$health"><td>$hpa</td><td>$target</td><td class="number">$least</td><td class="number">$most</td>'
    '<td class="number">$replicas</td><td title="$time">$decision</td></tr>'
)


_DRY_RUN = "dry run: hpad decides, but writes nothing to the cluster"


def render(
    rows: Sequence[Mapping[str, Any]], notes: Iterable[str], share: str | None = None, *, dry_run: bool = False
) -> str:
    """The page for the rows of `serve.hpas`, under what else is to be said; `share` is how much of it is done here."""
    notes = [_DRY_RUN, *notes] if dry_run else notes
    listed = "\n".join(f'<p class="note">{html.escape(note)}</p>' for note in notes)
    return _PAGE.substitute(
        style=_STYLE,
        count=html.escape(share or f"{len(rows)} HPA{'' if len(rows) == 1 else 's'}"),
        notes=listed,
        rows="\n".join(map(_row, rows)),
    )


def _row(row: Mapping[str, Any]) -> str:
    last = row["lastDecision"] or {"time": "", "sentence": "not yet", "error": None}
    competing = [held["message"] for held in row["conditions"] if held["type"] == COMPETING_WRITERS]
    current, desired = row["currentReplicas"], row["desiredReplicas"]
    cells = {
        "health": "trouble" if last["error"] or competing else "well",
        "hpa": f"{row['namespace']}/{row['name']}",
        "target": f"{row['target']['kind']}/{row['target']['name']}",
        "least": row["minReplicas"],
        "most": row["maxReplicas"],
        "replicas": current if current == desired else f"{current} → {desired}",
        "time": last["time"],
        "decision": "; ".join([last["sentence"], *competing]),
    }
    return _ROW.substitute({name: html.escape(str(value)) for name, value in cells.items()})
