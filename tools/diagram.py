"""Draws which package imports which, from the imports: `python -m tools.diagram` prints a Mermaid graph.

`--write` puts it into `docs/architecture.md`, between its markers; `--check` exits with status 1 if it is not there.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import grimp

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
BEGIN, END = "<!-- imports: begin -->", "<!-- imports: end -->"


def imports() -> dict[str, set[str]]:
    """Maps each package and module directly below hpad, and the built-in adapters, to those that it imports."""
    graph = grimp.build_graph("hpad", "hpad_adapters")
    found: dict[str, set[str]] = {}
    for importer in graph.modules:
        inner = _part(importer)
        for imported in graph.find_modules_directly_imported_by(importer):
            if inner and _part(imported) and _part(imported) != inner:
                found.setdefault(inner, set()).add(_part(imported))
    return found


def _part(module: str) -> str:
    names = module.split(".")
    if names[0] == "hpad_adapters":
        return names[0]
    return names[1] if len(names) > 1 and names[1] != "__main__" else ""


def reduced(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Returns the graph without edges that follow from a longer path."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for following in edges.get(waiting.pop(), ()):
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        return seen

    return {
        one: {two for two in to if not any(two in reach(other) for other in to - {two})} for one, to in edges.items()
    }


def mermaid() -> str:
    """Returns the reduced graph as a Mermaid block."""
    edges = reduced(imports())
    lines = [f"    {one} --> {two}" for one in sorted(edges) for two in sorted(edges[one])]
    return "\n".join(["```mermaid", "flowchart TD", *lines, "```"])


def written(page: str) -> str:
    """Returns the page with the current graph between its markers."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{mermaid()}\n{END}{rest.split(END)[1]}"


def run(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--write"]:
        PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
    elif list(arguments) == ["--check"]:
        if written(page := PAGE.read_text("utf-8")) != page:
            print(f"not current: {PAGE.name}; run `make docs`", file=sys.stderr)
            return 1
    else:
        print(mermaid())
    return 0


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
