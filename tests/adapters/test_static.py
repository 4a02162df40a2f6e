"""Numbers from a file."""

import os
from pathlib import Path

import pytest

from hpad import testing
from hpad.adapter import AdapterError, Context, ExternalSample
from hpad_adapters.static import Static


async def test_numbers_and_quantities(context: Context, tmp_path: Path) -> None:
    file = tmp_path / "numbers.yaml"
    file.write_text("depth: 80\nload: 1500m\nhalf: 0.5\ntext: many\n")
    queries = [testing.external(name) for name in ("depth", "load", "half", "text", "absent")]
    answers = await testing.check_adapter(Static(Static.Settings(str(file)), context), queries)
    values = [answer.values for answer in answers if isinstance(answer, ExternalSample)]
    assert values == [(80_000,), (1500,), (500,)]
    assert [answer.message for answer in answers if isinstance(answer, AdapterError)] == [
        f"{file}: \"text\" is 'many', not a number",
        f'{file} holds no "absent"; it holds depth, load, half, text',
    ]


async def test_the_file_is_read_for_every_batch(context: Context, tmp_path: Path) -> None:
    file = tmp_path / "numbers.json"
    adapter = Static(Static.Settings(str(file)), context)
    for number in (1, 2):
        file.write_text(f'{{"depth": {number}}}')
        (answer,) = await adapter.answer([testing.external("depth")])
        assert isinstance(answer, ExternalSample)
        assert answer.values == (number * 1000,)


@pytest.mark.parametrize("content", [None, "{"])
async def test_a_file_that_cannot_be_read(context: Context, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "numbers.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(AdapterError, match=r"numbers\.yaml cannot be read"):
        await Static(Static.Settings(str(file)), context).answer([testing.external("depth")])


async def test_a_pipe_or_a_huge_file_holds_no_thread(context: Context, tmp_path: Path) -> None:
    """A FIFO without a writer would hold a thread of the pool for ever, at each read another one."""
    os.mkfifo(tmp_path / "numbers.yaml")
    adapter = Static(Static.Settings(str(tmp_path / "numbers.yaml")), context)
    with pytest.raises(AdapterError, match="cannot be read: not a file"):
        await adapter.answer([testing.external("depth")])
    (tmp_path / "numbers.yaml").unlink()
    (tmp_path / "numbers.yaml").write_bytes(b"depth: 1\n" + b"#" * (1 << 20))
    with pytest.raises(AdapterError, match="cannot be read: larger than 1 MiB"):
        await adapter.answer([testing.external("depth")])


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("a: &a [x, x]\ndepth: [*a, *a]", "cannot be read: it has YAML with anchors, aliases or tags"),
        ("depth: " + "[" * 5000, "cannot be read: not valid YAML"),
        ("- " * 5000, "cannot be read: it has a document nested more than 100 levels deep"),
        ("depth: 0x" + "1" * 20_000, "cannot be read: it has a number that is too long"),
        ("depth: 1" + ":1" * 20_000, "cannot be read: it has a number that is too long"),
        ("depth: 2001-99-99", "cannot be read: not valid YAML"),
        ("".join(f"k{number}: 1\n" for number in range(30_000)), "cannot be read: it has more than"),
    ],
)
async def test_a_hostile_file_is_refused_before_it_is_read(
    context: Context, tmp_path: Path, content: str, error: str
) -> None:
    """Aliases would let a kilobyte stand for gigabytes; other texts end in an exception, or after minutes."""
    (tmp_path / "numbers.yaml").write_text(content)
    with pytest.raises(AdapterError) as caught:
        await Static(Static.Settings(str(tmp_path / "numbers.yaml")), context).answer([testing.external("depth")])
    assert error in caught.value.message
