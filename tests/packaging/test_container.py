"""`packaging/Containerfile` builds, and the broker in it runs as a user without rights and stops when it is asked to.

The image is built with buildah on a base that debootstrap makes (Debian with Python), so that no registry of images is needed.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import polydomo
from tests.packaging.modules import ROOT
from tests.ports import free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]
BASE = "localhost/polydomo-base"
PACKAGES = "python3,python3-venv,python3-dev,ca-certificates"
SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GRACE = 30.0  # seconds


class Builder:
    """buildah, with a storage of its own, and no namespaces: it works inside other containers, too."""

    def __init__(self, storage: Path) -> None:
        places = ("--root", str(storage / "images"), "--runroot", str(storage / "run"))
        self.command = ["buildah", "--storage-driver", "vfs", *places]

    def run(self, *words: str) -> str:
        done = subprocess.run([*self.command, *words], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout.strip()


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    for program in ("buildah", "debootstrap"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (apt install {program})")
    if os.geteuid() != 0:
        pytest.skip("debootstrap and buildah's chroot isolation need root here")
    place = tmp_path_factory.mktemp("container")
    builder = Builder(place)
    trial = subprocess.run([*builder.command, "from", "scratch"], capture_output=True, text=True)
    if trial.returncode != 0:
        pytest.skip(f"buildah cannot make a container on this machine: {trial.stderr.strip()[-300:]}")
    made = subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(place / "base")],
        capture_output=True,
        text=True,
    )
    if made.returncode != 0:
        pytest.skip(f"debootstrap cannot reach Debian's packages: {made.stdout.strip()[-300:]}")
    builder.run("add", "-q", trial.stdout.strip(), str(place / "base"), "/")
    builder.run("config", "--env", f"PATH={SEARCHED}", trial.stdout.strip())  # as in any published image
    builder.run("commit", "-q", trial.stdout.strip(), BASE)
    shutil.rmtree(place / "base")
    trust = ("-v", "/etc/ssl/certs:/etc/ssl/certs:ro")  # of this machine, for the package index
    options = ("--isolation", "chroot", "--network", "host", *trust, "--build-arg", f"BASE={BASE}")
    builder.run("build", *options, "-f", "packaging/Containerfile", "-t", "polydomo", ".")
    return builder


@pytest.fixture
def container(builder: Builder) -> Iterator[str]:
    made = builder.run("from", "polydomo")
    yield made
    builder.run("rm", made)


def test_the_image_has_a_compiled_core_and_a_user_without_rights(builder: Builder, container: str) -> None:
    run = ("run", "--isolation", "chroot", container, "--")
    assert "compiled core" in builder.run(*run, "polydomo", "--version")
    assert builder.run(*run, "id", "-u") == "10001"
    assert builder.run(*run, "sh", "-c", "touch /opt/polydomo/x 2>/dev/null || echo refused") == "refused"
    assert builder.run(*run, "sh", "-c", "command -v cc mypy || echo neither") == "neither"


# Mounts the file system of the image ($1) as a pod with a read-only root has it: only its data and /tmp can be written to.
READ_ONLY = """
set -e
mount --bind "$1" "$1"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
mount -t tmpfs -o mode=0700,uid=10001,gid=10001 tmpfs "$1/var/lib/polydomo"
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
mount -o remount,bind,ro "$1"
root=$1; shift
exec chroot "$root" setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set=-all "$@"
"""


def test_the_broker_in_it_serves_and_stops_within_its_grace_time(builder: Builder, container: str) -> None:
    """As a pod with the restricted security context: no root, no capabilities, a read-only root file system."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("mount namespaces are not allowed on this machine")
    variables = builder.run("inspect", "--format", "{{range .OCIv1.Config.Env}}{{println .}}{{end}}", container)
    inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", READ_ONLY, "sh"]
    inside += [builder.run("mount", container), "env", "-i", *variables.split("\n")]
    refused = [*inside, "sh", "-c", "touch /opt/polydomo/x /var/x; touch /tmp/x $POLYDOMO_DATA/x && id -u"]
    done = subprocess.run(refused, capture_output=True, text=True)
    assert done.stdout == "10001\n" and done.stderr.count("Read-only file system") == 2, done
    port = free_port()
    up = ["polydomo", "up", "--insecure", "--listen", f"tcp://127.0.0.1:{port}"]
    process = subprocess.Popen([*inside, *up], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        with polydomo.Client(f"tcp://127.0.0.1:{port}", timeout=60) as client:
            assert client.call("polydomo.status").frames
            assert client.submit_job("work", b"kept on the volume")
        found = subprocess.run(["pgrep", "-u", "10001", "-f", f"127.0.0.1:{port}"], capture_output=True, text=True)
        own = found.stdout.split()
        assert len(own) == 1, own
        began = time.monotonic()
        subprocess.run(["kill", "-TERM", own[0]], check=True)
        assert process.wait(GRACE) == 0
        assert time.monotonic() - began < GRACE
    finally:
        process.kill()
        process.communicate()
