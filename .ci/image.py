"""Builds hpad's wheel into dist/, and an image of all wheels there: `make image`, with EXTRAS=kafka for its sources.

The wheel needs no registry. The image is built by the first of podman, docker and buildah that works here; its base
image comes from a registry, unless this machine has it. Where none works, the command to run elsewhere is printed.
Its name is that of config/image, or IMAGE.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
BUILDERS = ("podman", "docker", "buildah")


def name() -> str:
    """Returns the name and tag of the image that config/ deploys."""
    [image] = yaml.safe_load((ROOT / "config/image/kustomization.yaml").read_text(encoding="utf-8"))["images"]
    return f"{image['newName']}:{image['newTag']}"


def builder() -> str:
    """Returns the first builder that works, such as a docker whose daemon runs; "" if there is none."""
    for each in BUILDERS:
        if shutil.which(each) and subprocess.run([each, "info"], capture_output=True, check=False).returncode == 0:
            return each
    return ""


def command(program: str) -> list[str]:
    extras = os.environ.get("EXTRAS")
    options = ["--build-arg", f"EXTRAS={extras}"] if extras else []
    tag = os.environ.get("IMAGE") or name()
    return [program, "build", "--tag", tag, *options, "--file", "Containerfile", "dist"]


def main() -> int:
    for old in DIST.glob("hpad-[0-9]*"):
        old.unlink()
    subprocess.run([sys.executable, ROOT / ".ci/dist.py", DIST], check=True)
    print("wheels of the image:", *sorted(each.name for each in DIST.glob("*.whl")))
    found = builder()
    if not found:
        print(f"no image: none of {', '.join(BUILDERS)} works here. Where one does, with dist/ and the Containerfile:")
        print(shlex.join(command("podman")))
        return 0
    return subprocess.run(command(found), cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
