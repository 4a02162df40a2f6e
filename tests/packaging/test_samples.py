"""The samples of config/ can be applied at once, and no sample takes the name or the target of another one."""

from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from support import commands, kubectl_binaries

pytest_plugins = ("support.kubectl_fixtures",)
ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("hpas", "manifests", "autoscalers")


def samples(folder: str) -> list[dict[str, Any]]:
    files = sorted((ROOT / "config" / folder).glob("*.yaml"))
    return [document for path in files for document in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader)]


def test_names_and_targets_of_samples_are_unique() -> None:
    every = [each for folder in FOLDERS for each in samples(folder)]
    assert len(every) >= 19
    names = Counter(each["metadata"]["name"] for each in every)
    targets = Counter(tuple(sorted(each["spec"]["scaleTargetRef"].items())) for each in every)
    assert {name: count for name, count in (names | targets).items() if count > 1} == {}
    assert {each["metadata"].get("namespace") for each in every} == {None}


def test_the_workloads_to_try_keep_names_that_no_other_sample_scales() -> None:
    """docs/getting-started.md applies config/lab, and gives its Deployments HPAs of its own."""
    workloads = {each["metadata"]["name"] for each in samples("lab")}
    assert {"web", "worker"} <= workloads
    scalers = [each for folder in FOLDERS for each in samples(folder)]
    scaled = {each["spec"]["scaleTargetRef"]["name"]: each["metadata"]["name"] for each in scalers}
    assert {name: scaled[name] for name in workloads & set(scaled)} == {"worker": "worker"}


def test_no_sample_goes_on_doubling_replicas_on_an_empty_queue() -> None:
    status, out, err = commands.called("check", "--scale-to-zero", *(str(ROOT / "config" / each) for each in FOLDERS))
    assert (status, err) == (0, "")
    assert out.endswith(" documents checked, none with errors\n")


async def test_autoscalers_can_be_applied_and_are_shown_as_hpas_are(processes: kubectl_binaries.Kubectl) -> None:
    await processes(f"apply -f {ROOT / 'config' / 'crd' / 'autoscalers.hpad.io.yaml'}")
    for outcome in ("created", "unchanged"):
        text = await processes(f"apply -f {ROOT / 'config' / 'autoscalers'}")
        assert all(line.endswith(outcome) for line in text.splitlines()), text
    assert await processes.names("asr") == {each["metadata"]["name"] for each in samples("autoscalers")}
    head, *rows = (await processes("get autoscalers")).splitlines()
    assert head.split() == ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]
    assert [row.split()[:4] for row in rows if row.startswith("orders")] == [["orders", "orders", "0", "20"]]


async def test_all_samples_can_be_applied_at_once(processes: kubectl_binaries.Kubectl) -> None:
    text = await processes(f"apply -f {ROOT / 'config' / 'hpas'}")
    expected = {each["metadata"]["name"] for each in samples("hpas")}
    assert len(text.splitlines()) == len(expected)
    assert all(line.endswith(" created") for line in text.splitlines()), text
    assert await processes.names("hpa") == expected
    again = await processes(f"apply -f {ROOT / 'config' / 'hpas'}")
    assert len(again.splitlines()) == len(expected)
    assert all(line.endswith(" unchanged") for line in again.splitlines()), again
