"""The workers of the demo: which kind is chosen, and what the long job of Celery notes."""

import importlib.util
from pathlib import Path

import pytest

from hpad.lab.demo import DemoError, workers
from hpad.lab.demo.workloads import celery_worker


def test_celery_is_chosen_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert workers.chosen(None) == workers.CELERY
    assert workers.chosen(workers.PLAIN) == workers.PLAIN
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert workers.chosen(None) == workers.PLAIN
    with pytest.raises(DemoError, match=r"pip install '\.\[demo\]'"):
        workers.chosen(workers.CELERY)


def test_the_deployment_runs_the_workers() -> None:
    deployment = {"spec": {"template": {"spec": {"containers": [{"name": "worker"}]}}}}
    for kind, module in ((workers.PLAIN, "worker"), (workers.CELERY, "celery_worker")):
        workers.Workers(kind, {}).fill_in(deployment)
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert container["command"][1:] == ["-m", f"hpad.lab.demo.workloads.{module}"]


def test_the_long_job_notes_its_begin_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONG_JOBS", str(tmp_path / "jobs"))
    celery_worker.long_job(0.0)
    began, ended = (tmp_path / "jobs").read_text().splitlines()
    assert (began.split()[0], ended.split()[0]) == ("began", "finished")
    assert began.split()[1] == ended.split()[1]
