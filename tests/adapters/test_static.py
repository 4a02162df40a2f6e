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
    with pytest.raises(AdapterError, match=r"numbers\.yaml: (cannot be read|not valid YAML)"):
        await Static(Static.Settings(str(file)), context).answer([testing.external("depth")])


async def test_a_pipe_or_a_huge_file_holds_no_thread(context: Context, tmp_path: Path) -> None:
    """A FIFO without a writer would hold a thread of the pool for ever, at each read another one."""
    os.mkfifo(tmp_path / "numbers.yaml")
    adapter = Static(Static.Settings(str(tmp_path / "numbers.yaml")), context)
    with pytest.raises(AdapterError, match="cannot be read: not a file"):
        await adapter.answer([testing.external("depth")])
    (tmp_path / "numbers.yaml").unlink()
    (tmp_path / "numbers.yaml").write_bytes(b"depth: 1\n" + b"#" * (4 << 20))
    with pytest.raises(AdapterError, match="cannot be read: it is larger than 4 MiB"):
        await adapter.answer([testing.external("depth")])


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("a: &a [*a]", "an anchor whose value contains itself"),
        ("depth: " + "[" * 5000, "not valid YAML: while increasing flow level exceeded maximum nesting depth"),
        ("- " * 5000, "not valid YAML: nested more than 200 levels deep"),
        ("depth: 0x" + "1" * 20_000, "a number of 20,002 digits, at most 100 are read"),
        ("".join(f"k{number}: 1\n" for number in range(260_000)), "not valid YAML: has more than"),
    ],
)
async def test_a_hostile_file_is_refused_before_it_is_read(
    context: Context, tmp_path: Path, content: str, error: str
) -> None:
    """Such texts would take gigabytes, end in an exception, or after minutes."""
    (tmp_path / "numbers.yaml").write_text(content)
    with pytest.raises(AdapterError) as caught:
        await Static(Static.Settings(str(tmp_path / "numbers.yaml")), context).answer([testing.external("depth")])
    assert error in caught.value.message
