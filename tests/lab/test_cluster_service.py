"""A cluster as a service: what it keeps over a restart, takes from its files, and gives to processes."""

import os
import socket

import pytest

from hpad.lab.cluster import ApiError, Cluster, SnapshotError, cgroups, hosts
from tests.support.virtual_time import ManualClock

pytestmark = pytest.mark.cluster
TERM = "trap 'sleep 0.5; touch $OLDPWD/ended; exit 0' TERM; touch ready; while :; do sleep 0.05; done"


def deployment(name="mail", *, pod=None, **container):
    labels = {"app": name}
    spec = {"containers": [{"name": "worker", "command": ["sleep", "1000"], **container}], **(pod or {})}
    template = {"metadata": {"labels": labels}, "spec": spec}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


async def test_objects_survive_a_restart_and_pods_start_anew(start, until, tmp_path):
    kept = tmp_path / "objects.json"
    client = await start(service=kept)
    cluster = client.cluster
    cluster.files.apply([deployment()])
    await until(lambda: len(cluster.pids()) == 1)
    (pod,) = cluster.list("pods")
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/log"
    assert f"journalctl -t {pod['metadata']['name']}" in (await client.ask("GET", path))[1]["message"]
    old, before = set(cluster.pids()), cluster.get("deployments", "mail")
    before["spec"]["replicas"] = 2
    cluster.apply(before)
    await until(lambda: len(cluster.pids()) == 2)
    await cluster.stop()
    assert kept.stat().st_mode & 0o077 == 0
    again = (await start(service=kept)).cluster
    await until(lambda: len(again.pids()) == 2)
    after = again.get("deployments", "mail")
    assert (after["metadata"]["uid"], after["spec"]["replicas"]) == (before["metadata"]["uid"], 2)
    assert not old & set(again.pids())
    assert again.files.apply([deployment()]) == ([], [])
    assert int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])


async def test_a_damaged_file_of_objects_is_an_error(tmp_path):
    kept = tmp_path / "objects.json"
    kept.write_text("{")
    with pytest.raises(SnapshotError, match=r"objects\.json cannot be read: .* begins anew"):
        await Cluster(service=kept).start()


async def test_pods_end_within_their_own_grace(start, until, tmp_path):
    cluster = (await start(service=tmp_path / "objects.json", directory=tmp_path)).cluster
    command = ["sh", "-c", f"cd {tmp_path}; cd -; {TERM}"]
    cluster.files.apply([deployment(command=command, pod={"terminationGracePeriodSeconds": 60})])
    await until(lambda: [*tmp_path.glob("*/ready")])
    assert cluster.longest_grace == 60
    await cluster.stop()
    assert (tmp_path / "ended").exists()
    assert not [*tmp_path.glob("default_*")]


async def test_files_change_and_remove_only_what_is_theirs(start):
    cluster = (await start(controllers=False)).cluster
    cluster.apply(deployment("other"))
    first = deployment(env=[{"name": "A", "value": "1"}])
    assert cluster.files.apply([first, deployment("old")]) == (["deployment/mail", "deployment/old"], [])
    cluster.apply({**deployment(), "spec": {**deployment()["spec"], "replicas": 5}})
    assert cluster.files.apply([deployment()]) == (["deployment/mail"], ["deployment/old"])
    assert [obj["metadata"]["name"] for _, obj in cluster.files.earlier()] == ["mail"]
    spec = cluster.get("deployments", "mail")["spec"]
    assert spec["replicas"] == 5
    assert "env" not in spec["template"]["spec"]["containers"][0]
    assert {each["metadata"]["name"] for each in cluster.list("deployments")} == {"mail", "other"}


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (deployment(command=[]), r"spec\.template\.spec\.containers\[0\]\.command is missing"),
        (deployment(livenessProbe={"exec": {"command": ["x"]}}), r"containers\[0\]\.livenessProbe is not supported"),
        (deployment(pod={"volumes": [{"name": "x"}]}), r"spec\.template\.spec\.volumes is not supported"),
        (deployment(env=[{"name": "A", "valueFrom": {"secretKeyRef": {}}}]), r"env\[0\]\.valueFrom: only fieldRef"),
        (deployment(resources={"limits": {"memory": "1 GB"}}), r"containers\[0\]\.resources: "),
        (deployment(comand=["x"]), r"unknown field spec\.template\.spec\.containers\[0\]\.comand"),
        ({**deployment(), "spec": {"replicas": "two"}}, "replicas"),
        ({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}, "Job is not supported"),
        ({"apiVersion": "v1", "kind": "Nonsense", "metadata": {"name": "x"}}, 'no kind "Nonsense" in version "v1"'),
        ({**deployment(), "metadata": {}}, r"metadata\.name is missing"),
    ],
)
async def test_what_a_process_cannot_follow_is_an_error(manifest, problem):
    cluster = Cluster()
    with pytest.raises((ValueError, ApiError), match=problem):
        cluster.files.check(manifest)
    assert not cluster.list("deployments")


async def test_events_expire(start):
    clock = ManualClock()
    cluster = (await start(kubelet=False, controllers=False, clock=clock)).cluster
    about = {"kind": "Pod", "name": "x", "namespace": "default"}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "old"}, "involvedObject": about}
    cluster.apply(event)
    clock.advance(3660)
    cluster.apply({**event, "metadata": {"name": "new"}})
    cluster.expire_events()
    assert [each["metadata"]["name"] for each in cluster.list("events")] == ["new"]


def test_output_goes_to_the_journal_under_the_name_of_the_pod(tmp_path):
    path = tmp_path / "stdout"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()
        descriptor = hosts.journal_stream("mail-1", path)
        os.write(descriptor, b"begun\n")
        os.close(descriptor)
        received, _ = server.accept()
        with received, received.makefile("rb") as lines:
            assert lines.read() == b"mail-1\n\n6\n0\n0\n0\n0\nbegun\n"


def test_without_a_journal_output_goes_to_standard_error(tmp_path):
    descriptor = hosts.journal_stream("mail-1", tmp_path / "none")
    same = os.path.samestat(os.fstat(descriptor), os.fstat(2))
    os.close(descriptor)
    assert same


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, {}),
        ({"requests": {"cpu": "250m"}}, {"cpu.weight": "10"}),
        (
            {"requests": {"cpu": 1}, "limits": {"cpu": "1500m", "memory": "64Mi"}},
            {
                "cpu.max": "150000 100000",
                "cpu.weight": "39",
                "memory.max": "67108864",
                "memory.swap.max": "0",
                "memory.oom.group": "1",
            },
        ),
    ],
)
def test_resources_as_files_of_a_cgroup(resources, expected):
    """The weights are those of Kubernetes' documentation of cgroup v2: 1 + ((shares - 2) * 9999) / 262142."""
    assert cgroups.settings(resources) == expected


def test_usage_of_a_cgroup(tmp_path):
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 3000\ninactive_file 1500\n")
    (tmp_path / "memory.events").write_text("max 3\noom_kill 1\n")
    group = cgroups.Group(tmp_path)
    assert group.usage() == (2.5, 3500)
    assert group.is_out_of_memory()
