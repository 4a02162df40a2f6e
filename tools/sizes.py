"""Prints files over 400 lines and functions over 40 statements, for reviewers. It only reports them."""

import ast
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 400
FUNCTION_STATEMENTS = 40
ROOT = Path(__file__).resolve().parent.parent


def sources() -> Iterator[Path]:
    for folder in ("hpad", "adapters", "tests", "tools"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def statements(function: ast.AST) -> int:
    return sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1


def outliers(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT)
    if (lines := text.count("\n")) > FILE_LINES:
        yield f"{name}: {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and statements(node) > FUNCTION_STATEMENTS:
            yield f"{name}:{node.lineno}: {node.name} has {statements(node)} statements"


def main() -> None:
    found = [line for path in sources() for line in outliers(path)]
    print(f"size outliers: {len(found)}")
    for line in found:
        print(f"  {line}")


if __name__ == "__main__":
    main()
