"""The manifests that the overlays of config/ give; `python -m tools.overlays` renders them."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "hosted": ROOT / "config" / "install.yaml",
    **{path.stem: path for path in sorted((ROOT / "tests" / "data" / "overlays").glob("*.yaml"))},
}
Json = dict[str, Any]
_RIGHTS = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


def documents(name: str) -> list[Json]:
    """Returns all objects of an overlay."""
    return list(yaml.load_all(FILES[name].read_text("utf-8"), yaml.CSafeLoader))


def component(name: str) -> list[Json]:
    """Returns the objects that a component of config/rbac adds, in the namespace hpad."""
    folder = ROOT / "config" / "rbac" / name
    listed = yaml.load((folder / "kustomization.yaml").read_text("utf-8"), yaml.CSafeLoader)["resources"]
    found = [each for file in listed for each in yaml.load_all((folder / file).read_text("utf-8"), yaml.CSafeLoader)]
    for each in found:
        if not each["kind"].startswith("Cluster"):
            each["metadata"]["namespace"] = "hpad"
    return found


def rights(name: str, *components: str) -> list[Json]:
    """Returns the account, roles and bindings of an overlay, with the rules that components add to its role `hpad`."""
    found = [each for each in documents(name) if each["kind"] in _RIGHTS]
    role = next(each for each in found if each["metadata"]["name"] in ("hpad", "hpad-shadow") and "rules" in each)
    role["rules"] += [rule for each in components for rule in rules(each)]
    return found


def rules(component: str) -> list[Json]:
    """Returns the rules that a component of config/rbac adds to the role `hpad`."""
    patch = yaml.safe_load((ROOT / "config" / "rbac" / component / "rules.yaml").read_text("utf-8"))
    return [operation["value"] for operation in patch]
