"""Shared by tests of kubeconfigs: writing and loading them."""

import asyncio
import base64
import json

import pytest

from hpad.kube.auth.credentials import ConfigError
from hpad.kube.auth.kubeconfig import load_cluster_config

PATH = "/api/v1/pods"
SECRET = "s3cret-t0ken"


def kubeconfig(path, *, server="http://127.0.0.1:1", user=None, cluster=None, context=None, **more):
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **(context or {})}}],
        "current-context": "x",
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def refused(*arguments):
    with pytest.raises(ConfigError) as caught:
        load_cluster_config(*arguments)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


async def sent(loaded, clock):
    return dict(await loaded.identity.headers(clock))


async def load(*arguments):
    """Loads a kubeconfig, with a longer timeout for credential plugins, which are slow on a busy machine."""
    loaded = await asyncio.to_thread(load_cluster_config, *arguments)
    loaded.identity._patience = 60.0
    return loaded


def encoded(blob):
    return base64.b64encode(blob.bytes()).decode()
