"""docs/architecture.md lists the files that one HPA passes through, from its watch event to its written status."""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LISTED = re.compile(r"`((?:hpad|adapters)/[^`]+\.py)`")
MOST = 30
BESIDE = {
    *("hpad/api/", "hpad/telemetry/", "hpad/daemon/", "hpad/adapter", "hpad/clock.py", "hpad/kube/auth/"),
    *(
        "hpad/kube/session.py",
        "hpad/kube/kept.py",
        "hpad/kube/connection.py",
        "hpad/kube/connector.py",
        "hpad/kube/exchange.py",
        "hpad/kube/client.py",
        "hpad/kube/watch.py",
        "hpad/kube/errors.py",
        "hpad/kube/paths.py",
        "hpad/kube/events.py",
    ),
    *("hpad/kube/competitors.py", "hpad/kube/managed_fields.py", "hpad/kube/pods.py", "hpad/kube/hpas.py"),
    *(
        "hpad/engine/decision.py",
        "hpad/engine/phrases.py",
        "hpad/engine/stage.py",
        "hpad/engine/conditions.py",
        "hpad/engine/marks.py",
        "hpad/controller/report.py",
    ),
    *("hpad/engine/share.py", "hpad/engine/budget.py", "hpad/controller/budgets.py"),
    *("hpad/engine/annotations.py", "hpad/engine/controls.py"),
    *("hpad/engine/shadow.py", "hpad/engine/spare.py", "hpad/engine/busy.py", "hpad/controller/sparing.py"),
    *(
        "hpad/engine/addresses.py",
        "hpad/engine/holds.py",
        "hpad/engine/trace/",
        "hpad/notify/",
        "hpad/records/",
        "hpad/store/database.py",
    ),
    "hpad/sources/redact.py",
    *("hpad/sources/replacement.py", "hpad/sources/offers.py", "hpad/sources/own_queries.py"),
    "adapters/hpad_adapters/lists.py",
}
"""What the page names beside the path: types, transport, an index, annotations, sentences, traces, series.

The removal of deletion costs (`sparing.py`) looks every few seconds, so on a busy machine it runs meanwhile.
"""


class Trace:
    """Collects the files whose functions are called while this is active."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __enter__(self) -> "Trace":
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.files.add(frame.f_code.co_filename)

    @property
    def of_hpad(self) -> set[str]:
        inside = (Path(file) for file in self.files)
        found = {str(path.relative_to(ROOT)) for path in inside if path.is_relative_to(ROOT)}
        return {file for file in found if file.startswith(("hpad/", "adapters/")) and "/lab/" not in file}


async def test_the_page_lists_the_files_from_watch_event_to_status(world: Any) -> None:
    world.workload("Deployment", "web", 1)
    world.load("web", 100)
    await world.hpad()
    with Trace() as trace:
        world.hpa("web")
        await world.until(lambda: world.status("web").get("desiredReplicas") == 2)
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    steps = page.split("## From watch event to written status")[1].split("Beside this path")[0]
    listed = set(LISTED.findall(steps))
    assert 25 < len(listed) <= MOST
    assert listed <= trace.of_hpad, "listed, and not on the path"
    unlisted = {file for file in trace.of_hpad - listed if not file.startswith(tuple(BESIDE))}
    assert not unlisted, "on the path, and not listed"
