"""Links of the documents have targets, their manifests are valid, and their examples run."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from hpad.adapter import Query
from hpad.cli import main
from hpad.engine import annotations
from hpad.simulation.advice.reading.series import EXPRESSIONS, SeriesLabels, read_file

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("", "docs/", "config/*/", "tests/", "tests/*/", "tools/*/")
DOCUMENTS = [path for folder in FOLDERS for path in sorted(ROOT.glob(f"{folder}*.md"))]
CITED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
HEADING = re.compile(r"^#+ (.+)$", re.M)
INDEX_NAME = re.compile(
    r"""\bhpad\[[a-z]|\b(?:pip|pipx|tool) install(?: [-\w.=<>]+)* ['"]?hpad(?:[-_]\w+)?(?=[\s'"`),]|$)""", re.M
)
NAMED = re.compile(
    r"`(hpad_spool\.py|test_hpad_spool\.py|pyproject\.toml|hpad\.yaml)`:\n\n```\w+\n(.*?)^```$", re.M | re.S
)


def anchor(heading: str) -> str:
    """Returns the fragment of a heading on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def blocks(path: Path, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(path.read_text("utf-8")) if found == language]


def yaml_blocks(pattern: str) -> list[object]:
    found = [(path, text) for path in DOCUMENTS for text in blocks(path, "yaml") if re.search(pattern, text, re.M)]
    return [pytest.param(text, id=f"{path.name}-{index}") for index, (path, text) in enumerate(found)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_have_targets(path: Path) -> None:
    for target in LINK.findall(path.read_text("utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, fragment = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{path.name}: {target}"
        if fragment:
            anchors = [anchor(heading) for heading in HEADING.findall(linked.read_text("utf-8"))]
            assert fragment in anchors, f"{path.name}: {target}"


def test_tests_that_documents_name_exist() -> None:
    cited = [cite for path in DOCUMENTS for cite in CITED.findall(path.read_text("utf-8"))]
    assert len(cited) > 20
    missing = [cite for cite in cited if f"def {cite[1]}(" not in (ROOT / cite[0]).read_text("utf-8")]
    assert missing == []


def test_the_weight_of_each_extra_is_stated() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = " ".join(path.read_text("utf-8") for path in DOCUMENTS)
    extras = set(project["optional-dependencies"]) - {"dev", "fuzz"}
    assert len(extras) > 4
    assert [name for name in extras if not re.search(rf"pip install '\.\[{name}\]'.* \d+ MB", text)] == []


def test_nothing_says_to_install_a_name_of_hpads_from_a_package_index() -> None:
    """The project owns no name there, so that a package of this name is a stranger's."""
    assert all(map(INDEX_NAME.search, ("pip install hpad", "pip install -U hpad-adapters", "the extra hpad[kafka]")))
    assert not any(map(INDEX_NAME.search, ("pip install ./hpad-x", "pip install 'hpad-0.1.0-py3-none-any.whl[kafka]'")))
    suffixes = {".md", ".py", ".yaml", ".toml", ".service", ".js", ".html", ""}
    places = [ROOT, *(ROOT / name for name in ("docs", "config", "systemd", "hpad", "adapters", ".ci"))]
    files = [path for place in places for path in (place.glob("*") if place == ROOT else place.rglob("*"))]
    texts = {path: path.read_text("utf-8") for path in files if path.is_file() and path.suffix in suffixes}
    assert ROOT / "Containerfile" in texts
    assert {str(path): found[0] for path, text in texts.items() if (found := INDEX_NAME.search(text))} == {}


def test_the_page_about_adapters_leads_to_each_field_of_a_query() -> None:
    assert "](../hpad/api/sample.py)" in (ROOT / "docs" / "adapters.md").read_text("utf-8")
    assert [name for name in Query.__struct_fields__ if f"`{name}`" not in (Query.__doc__ or "")] == []


def built_in_adapters() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [f"## `{name}`" for name in project["entry-points"]["hpad.adapters"]]


@pytest.mark.parametrize(
    ("document", "topics"),
    [
        ("docs/scale-to-zero.md", ["`HPAScaleToZero`", "`minReplicas: 0`"]),
        ("docs/celery.md", ["worker_prefetch_multiplier", "`celery_tasks`", "`celery_tasks_waiting`"]),
        ("docs/adapters.md", ["## The package", "## Its test", "## Ship it"]),
        ("docs/reference/annotations.md", [f"`{name}`" for name in annotations.ANNOTATIONS]),
        ("docs/reference/sources.md", built_in_adapters()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_readme_leads_to_each_topic(document: str, topics: list[str]) -> None:
    assert f"]({document})" in (ROOT / "README.md").read_text("utf-8")
    text = (ROOT / document).read_text("utf-8")
    assert len(topics) > 1
    assert [topic for topic in topics if topic not in text] == []


@pytest.mark.parametrize("text", yaml_blocks("^kind: HorizontalPodAutoscaler"))
def test_hpas_in_documents_are_valid(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hpa.yaml").write_text(text)
    assert main(["check", "--scale-to-zero", str(tmp_path / "hpa.yaml")]) == 0, capsys.readouterr()


@pytest.mark.parametrize("text", yaml_blocks(r"\A  metrics:\n"))
def test_metrics_in_documents_are_valid(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = yaml.safe_load(text)
    spec |= {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}}
    head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}}
    (tmp_path / "hpa.yaml").write_text(yaml.safe_dump({**head, "spec": spec}))
    assert main(["check", str(tmp_path / "hpa.yaml")]) == 0, capsys.readouterr()


@pytest.mark.parametrize("text", yaml_blocks("^sources:"))
def test_sources_in_documents_are_valid(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if "adapter: spool" in text:
        return  # checked below, with its adapter
    (tmp_path / "hpad.yaml").write_text(text)
    assert main(["check", str(tmp_path / "hpad.yaml")]) == 0, capsys.readouterr()


@pytest.mark.parametrize("path", sorted((ROOT / "config" / "sources").glob("*.yaml")), ids=lambda path: str(path.name))
def test_sources_to_paste_are_valid(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(path)]) == 0, capsys.readouterr()


def commands(path: Path) -> list[list[str]]:
    """Returns the commands of hpad that a document shows, each with its continued lines, as a shell splits them."""
    lines = re.findall(r"^    (hpad (?:.*\\\n)*.*)$", path.read_text("utf-8"), re.M)
    return [shlex.split(line.replace("\\\n", " "))[1:] for line in lines]


@pytest.mark.parametrize("document", ["simulate.md", "backtest.md"])
def test_commands_of_documents_run_as_pasted(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config" / "backtest").mkdir(parents=True)
    (tmp_path / "config" / "hpas").symlink_to(ROOT / "config" / "hpas")
    day = (ROOT / "config" / "backtest" / "day.csv").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "config" / "backtest" / "day.csv").write_text("".join(day[:20]))  # hours: a search of a day takes long
    monkeypatch.chdir(tmp_path)
    for settings in blocks(ROOT / "docs" / document, "yaml"):
        (tmp_path / "hpad.yaml").write_text(settings)
    shown = commands(ROOT / "docs" / document)
    assert shown
    for command in shown:
        assert Path(command[1]).is_file(), command
        if "--prometheus" not in command:
            assert main(command) == 0, capsys.readouterr()


@pytest.mark.parametrize("command", commands(ROOT / "docs" / "advise.md"), ids=" ".join)
def test_commands_of_the_advice_are_understood(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a cluster they fail with 1, or cannot tell, with 3; wrong use would be 2."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web.yaml").symlink_to(ROOT / "config" / "hpas" / "php-apache.yaml")
    assert main(command) == (3 if "--check" in command else 1), capsys.readouterr()


def test_the_file_of_series_in_the_guide_is_right(tmp_path: Path) -> None:
    (text,) = [each for each in blocks(ROOT / "docs" / "advise.md", "yaml") if "matchers:" in each]
    (tmp_path / "series.yaml").write_text(text)
    series = read_file(tmp_path / "series.yaml")
    assert series.matchers == 'cluster="prod"'
    assert series.cadvisor == SeriesLabels(pod="pod_name", container="container_name")
    assert series.expressions["current"] == "kube_hpa_status_current_replicas{<<.HPAs>>}"
    assert series.queues["shop/worker"]["orders"].per_replica is None
    guide = (ROOT / "docs" / "advise.md").read_text("utf-8")
    assert all(f"`{name}`" in guide for name in EXPRESSIONS)


class Spool:
    """The package of docs/adapters.md in a folder, as pip would install it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = dict(NAMED.findall((ROOT / "docs" / "adapters.md").read_text("utf-8")))
        assert set(files) == {"pyproject.toml", "hpad_spool.py", "test_hpad_spool.py", "hpad.yaml"}
        for name, text in files.items():
            (folder / name).write_text(text.replace("/var/spool/mailer", str(folder / "mailer")))
        points = re.search(r'"hpad\.adapters"\]\n(.*?)\n\n', files["pyproject.toml"], re.S)
        assert points is not None
        info = folder / "hpad_spool-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hpad-spool\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[hpad.adapters]\n{points[1].replace(chr(34), '')}\n")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HPAD_", "PYTEST_"))}
        # Plugins of pytest that its author need not have would take most of the time.
        environment = {**kept, "PYTHONPATH": str(self.folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        command = [sys.executable, "-m", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=self.folder, check=False)


def test_the_adapter_of_the_document_works(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    tested = spool.run("pytest", "-q", "-p", "no:cacheprovider", "test_hpad_spool.py")
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr
    described = spool.run("hpad", "adapters", "describe", "spool")
    assert "root: text (required)" in described.stdout
    checked = spool.run("hpad", "check", "hpad.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_adapter_of_the_document_answers(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    (tmp_path / "mailer" / "incoming").mkdir(parents=True)
    for number in range(7):
        (tmp_path / "mailer" / "incoming" / str(number)).touch()
    command = ("hpad", "sources", "test", "--config", "hpad.yaml", "mail", "spool_files", "--selector")
    found = spool.run(*command, "folder=incoming")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "7" in found.stdout
    missing = spool.run(*command, "folder=outgoing")
    assert missing.returncode != 0
    assert "outgoing" in missing.stdout + missing.stderr
