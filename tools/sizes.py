"""Fails for a public class name that stands for several things; reports sizes for reviewers.

The report has the modules and code lines of each package beside those of the last release, and files over 400 lines.
Code lines are those without blanks, comments and docstrings.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

FILE_LINES: Final = 400
ROOT: Final = Path(__file__).resolve().parent.parent
CONTRACT: Final = frozenset({"Settings", "Metric"})
"""Names that each adapter gives to a class of its own, by the contract of adapters."""
NOT_YET_UNIQUE: Final = {
    "Controller", "Decisions", "Document", "Row", "Step",
}  # fmt: skip
"""Names that still stand for several things. This list only gets shorter."""
NOT_COUNTED: Final = "lab"
"""The embedded cluster and the demo are no part of the daemon."""


class Size(NamedTuple):
    modules: int
    lines: int


LAST_RELEASE: Final = {
    "adapter_http": Size(4, 432),
    "adapters": Size(88, 7314),
    "api": Size(21, 2130),
    "cli": Size(60, 6384),
    "controller": Size(18, 2218),
    "daemon": Size(11, 1092),
    "decisions": Size(13, 1091),
    "election": Size(7, 894),
    "engine": Size(56, 5897),
    "hpad": Size(5, 164),
    "kube": Size(43, 5345),
    "manifests": Size(33, 2938),
    "recording": Size(11, 1512),
    "serve": Size(18, 1895),
    "settings": Size(6, 838),
    "simulation": Size(16, 1597),
    "sources": Size(10, 1453),
    "store": Size(8, 1050),
    "telemetry": Size(6, 576),
    "testing": Size(3, 311),
}
"""The figures of the last release, of commit 3b2870e until there is one."""


class Module(NamedTuple):
    """One file. `package` is the folder in `hpad`, "adapters", or "hpad" for the files beside the packages.

    `classes` are its public ones but those of `CONTRACT`.
    """

    name: str
    package: str
    code_lines: int
    classes: tuple[str, ...]


def texts(*folders: str) -> Iterator[tuple[Path, str]]:
    """Yields the modules below folders of the project, and their texts."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def read(*folders: str) -> Iterator[Module]:
    for path, text in texts(*folders):
        tree, parts = ast.parse(text), path.parts
        package = parts[1] if parts[0] == "hpad" and len(parts) > 2 else parts[0]
        yield Module("/".join(parts), package, code_lines(text, tree), tuple(classes(tree)))


def classes(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in CONTRACT:
            yield node.name


def code_lines(text: str, tree: ast.Module) -> int:
    numbered = enumerate(text.splitlines(), 1)
    lines = {number for number, line in numbered if line.strip() and not line.lstrip().startswith("#")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def sizes(modules: list[Module]) -> Iterator[str]:
    """Yields a row for each package: its modules and code lines, and those of the last release."""
    count, lines = Counter(module.package for module in modules), Counter[str]()
    for module in modules:
        lines[module.package] += module.code_lines
    now = {package: Size(count[package], lines[package]) for package in count}
    yield f"{'package':14}{'modules':>8}{'before':>8}{'code lines':>12}{'before':>8}"
    for package in sorted(now.keys() | LAST_RELEASE.keys()):
        yield _row(package, now.get(package, Size(0, 0)), LAST_RELEASE.get(package, Size(0, 0)))
    yield _row("all", _sum(now), _sum(LAST_RELEASE))


def _sum(each: dict[str, Size]) -> Size:
    return Size(sum(size.modules for size in each.values()), sum(size.lines for size in each.values()))


def _row(name: str, now: Size, before: Size) -> str:
    return f"{name:14}{now.modules:8}{before.modules:8}{now.lines:12}{before.lines:8}"


def repeated(modules: list[Module]) -> dict[str, list[str]]:
    """Returns each public class name that several modules define, with these modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for name in module.classes:
            found[name].append(module.name)
    return {name: files for name, files in found.items() if len(files) > 1}


def main() -> int:
    counted = [module for module in read("hpad", "adapters") if module.package != NOT_COUNTED]
    print("\n".join(sizes(counted)))
    lengths = {path: text.count("\n") for path, text in texts("hpad", "adapters", "tests", "tools")}
    long = {path: lines for path, lines in lengths.items() if lines > FILE_LINES}
    print(f"files over {FILE_LINES} lines: {len(long)}")
    for path, lines in long.items():
        print(f"  {path}: {lines} lines")
    errors = {name: files for name, files in sorted(repeated(counted).items()) if name not in NOT_YET_UNIQUE}
    for name, files in errors.items():
        print(f"the class name {name} stands for several things ({', '.join(files)}): rename it by what each is")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
