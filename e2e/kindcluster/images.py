"""The operator's and the trainers' images, and the base below them: from a registry, else from Debian's packages."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kindcluster import commands, leftovers
from kindcluster.commands import Report, told
from kindcluster.docker import Docker, digest
from kindcluster.errors import KindClusterError
from kindcluster.host import install
from localcluster.build import REPOSITORY, build_dir

DOCKERFILES = Path(__file__).parent / "dockerfiles"
PUBLISHED_BASE = "python:3.13-slim"  # Debian trixie as well
_OPERATOR = "lockstep-operator"
_DEBIAN = "lockstep-debian"
_STAGE = f"{_OPERATOR}-build:latest"  # what the next build of the operator's image need not do again
_DEBIAN_MIRROR = "LOCKSTEP_DEBIAN_MIRROR"
_PYTHON_INDEX = "PIP_INDEX_URL"
_OF_A_SOURCE = re.compile(
    r"lockstep-(node|python|build|operator|training|trainer|openmpi4?|mpich|impi-rt|ray|deepspeed)"
    r":(v[\d.]+-)?[0-9a-f]{12}$"
)
_MADE_IN = "making-"  # begins the names of folders that go when they have been used
HOST_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_NOT_IMPORTED = ("./var/cache/apt/archives/*.deb", "./var/lib/apt/lists/*", "./usr/share/doc", "./usr/share/man")


def version(source: Path = REPOSITORY) -> str:
    """The project's, which is the tag of its image. Raises KindClusterError."""
    found = re.search(r'^__version__ = "(.+)"$', (source / "operator/lockstep/__init__.py").read_text(), re.MULTILINE)
    if not found:
        raise KindClusterError("operator/lockstep/__init__.py names no version")
    return found[1]


def uv_version(source: Path = REPOSITORY) -> str:
    """That of the Makefile, so that both resolve alike."""
    for line in (source / "Makefile").read_text().splitlines():
        if line.startswith("UV_VERSION :="):
            return line.partition(":=")[2].strip()
    raise KindClusterError("the Makefile names no UV_VERSION")


def debian(docker: Docker, suite: str, folder: Path, report: Report) -> str:
    """An image of a minimal Debian: a registry's, else one made by debootstrap. Raises KindClusterError."""
    name, published = f"{_DEBIAN}:{suite}", f"debian:{suite}-slim"
    if docker.has_image(name):
        return name
    is_root = os.geteuid() == 0
    # A registry's asks Debian's own mirror, not the one that is named.
    if not (is_root and os.environ.get(_DEBIAN_MIRROR)) and docker.pull(published):
        return published
    if not is_root:
        raise KindClusterError(
            f"no image registry gives {published}, and only root can make the like by debootstrap:"
            f" run this as root, or have the image here first, as `docker pull {published}` would"
        )
    install({"debootstrap": "debootstrap"}, log=folder / "packages.log", report=report)
    with told(report, f"making Debian {suite} from packages"), workshop(folder) as root:
        commands.run(debootstrap(suite, root), log=folder / f"debian-{suite}.log")
        packed = subprocess.Popen(
            ["tar", "-C", str(root), *(f"--exclude={path}" for path in _NOT_IMPORTED), "-c", "."],
            stdout=subprocess.PIPE,
        )
        imported = subprocess.run(
            ["docker", "import", "-", name],
            env={**os.environ, **docker.environment},
            stdin=packed.stdout,
            capture_output=True,
            text=True,
            check=False,
        )
        if packed.wait() != 0 or imported.returncode != 0:
            raise KindClusterError(f"docker import of Debian {suite} failed: {imported.stderr}")
    return name


def debootstrap(suite: str, root: Path) -> list[str | Path]:
    """Its command. The mirror that it is given is also asked by apt-get in what it makes."""
    mirror = os.environ.get(_DEBIAN_MIRROR)
    return ["debootstrap", "--variant=minbase", suite, root, *([mirror] if mirror else [])]


def base(docker: Docker, folder: Path, report: Report) -> str:
    """An image with Python 3.13: a registry's, else one made here."""
    if docker.pull(PUBLISHED_BASE):
        return PUBLISHED_BASE
    dockerfile = DOCKERFILES / "python.Dockerfile"
    name = f"lockstep-python:{digest([dockerfile])}"
    if not docker.has_image(name):
        report(f"no image registry gives {PUBLISHED_BASE}: the base image is made here")
        minimal = debian(docker, "trixie", folder, report)
        with told(report, "adding Python to it"):
            docker.build(name, dockerfile, DOCKERFILES, {"DEBIAN": minimal})
    return name


def for_builds(docker: Docker, image: str) -> str:
    """`image` with the authorities that this machine trusts; never shipped."""
    if not HOST_CERTIFICATES.exists():
        return image
    name = f"lockstep-build:{digest([image, HOST_CERTIFICATES])}"
    if not docker.has_image(name):
        with tempfile.TemporaryDirectory() as context:
            shutil.copy(HOST_CERTIFICATES, context)
            docker.build(name, DOCKERFILES / "certificates.Dockerfile", Path(context), {"BASE_IMAGE": image})
    return name


def operator(docker: Docker, underneath: str, report: Report) -> str:
    """The operator's image on a base, built from this checkout; its SBOM is left in `.build/image`. Its name."""
    name = f"{_OPERATOR}:{version()}"
    arguments = _arguments(docker, underneath, REPOSITORY, _revision())
    with told(report, f"building {name}"):
        if docker.is_ours:
            docker.build(_STAGE, REPOSITORY / "Dockerfile", REPOSITORY, arguments, stage="build")
        docker.build(name, REPOSITORY / "Dockerfile", REPOSITORY, arguments)
    sbom = build_dir() / "image" / "lockstep-operator.cdx.json"
    sbom.parent.mkdir(parents=True, exist_ok=True)
    sbom.write_text(docker("run", "--rm", "--network=none", "--entrypoint=cat", name, "/opt/lockstep/sbom.cdx.json"))
    report(f"its list of contents (CycloneDX) is {sbom}")
    return name


def tests(docker: Docker, underneath: str, report: Report) -> str:
    """What the operator's image has, and pytest. Its name."""
    name = f"{_OPERATOR}-tests:{version()}"
    arguments = _arguments(docker, underneath, REPOSITORY, _revision())
    with told(report, f"building {name}"):
        docker.build(_STAGE, REPOSITORY / "Dockerfile", REPOSITORY, arguments, stage="build")
        values = {name: value for name, value in arguments.items() if name == _PYTHON_INDEX}
        docker.build(name, DOCKERFILES / "tests.Dockerfile", DOCKERFILES, values | {"OPERATOR_BUILD": _STAGE})
    return name


def former_operator(docker: Docker, underneath: str, source: Path, revision: str, report: Report) -> str:
    """The operator's image on a base as another commit makes it, whose files are in `source`. Its name.

    What both commits have in common is not built again: mostly all but the project's own package.
    """
    name = f"{_OPERATOR}:{revision[:12]}"
    with told(report, f"building {name}"):
        docker.build(name, source / "Dockerfile", source, _arguments(docker, underneath, source, revision))
    return name


def _arguments(docker: Docker, underneath: str, source: Path, revision: str) -> dict[str, str]:
    index = os.environ.get(_PYTHON_INDEX)
    return ({_PYTHON_INDEX: index} if index else {}) | {
        "BUILD_IMAGE": for_builds(docker, underneath),
        "BASE_IMAGE": underneath,
        "UV_VERSION": uv_version(source),
        "VERSION": version(source),
        "REVISION": revision,
    }


def training(docker: Docker, underneath: str, report: Report) -> str:
    """An image on a base with PyTorch for CPUs and gloo. Its name."""
    dockerfile = DOCKERFILES / "training.Dockerfile"
    name = f"lockstep-training:{digest([underneath, dockerfile])}"
    if not docker.has_image(name):
        with told(report, "building the training image: PyTorch from Debian's packages"):
            docker.build(name, dockerfile, DOCKERFILES, {"BASE_IMAGE": underneath})
    return name


def trainer(docker: Docker, underneath: str) -> str:
    """An image on a base for training that needs nothing but Python. Its name."""
    dockerfile = DOCKERFILES / "trainer.Dockerfile"
    name = f"lockstep-trainer:{digest([underneath, dockerfile])}"
    if not docker.has_image(name):
        docker.build(name, dockerfile, DOCKERFILES, {"BASE_IMAGE": underneath})
    return name


def launcher(docker: Docker, underneath: str, group: str, report: Report) -> str:
    """An image on a base with a group of what tests/launchers locks. Its name."""
    dockerfile, locked = DOCKERFILES / "launchers.Dockerfile", REPOSITORY / "tests" / "launchers"
    name = f"lockstep-{group}:{digest([underneath, dockerfile, locked / 'uv.lock'])}"
    if not docker.has_image(name):
        index = os.environ.get(_PYTHON_INDEX)
        arguments = {
            "BUILD_IMAGE": for_builds(docker, underneath),
            "BASE_IMAGE": underneath,
            "UV_VERSION": uv_version(),
            "GROUP": group,
        }
        with told(report, f"building the image with {group}"):
            docker.build(name, dockerfile, locked, arguments | ({_PYTHON_INDEX: index} if index else {}))
    return name


def prune(docker: Docker, *current: str) -> None:
    """Remove what earlier sources made.

    From a daemon of our own that is all that is neither of `current` nor below it; from another's what is tagged with
    one of our digests, unless a container is made of it.
    """
    kept = {_STAGE, *current}
    names = docker("images", "--format", "{{.Repository}}:{{.Tag}}").split()
    if not docker.is_ours:
        for name in names:
            if _OF_A_SOURCE.match(name) and name not in kept:
                with contextlib.suppress(KindClusterError):
                    docker("image", "rm", name)
        return
    superseded = [name for name in names if name not in kept and not name.startswith((f"{_DEBIAN}:", "<none>"))]
    if superseded:
        docker("image", "rm", *superseded)
    docker("image", "prune", "--force")


@contextmanager
def workshop(folder: Path) -> Iterator[Path]:
    """A folder below `folder` for as long as the block runs; `clear_workshops` removes it where that was cut short."""
    with tempfile.TemporaryDirectory(prefix=_MADE_IN, dir=folder) as made:
        yield Path(made)


def clear_workshops(folder: Path) -> None:
    """End what those who were killed had begun here, and remove it."""
    for left in folder.glob(f"{_MADE_IN}*"):
        leftovers.clear(left)


def _revision() -> str:
    answer = subprocess.run(
        ["git", "-C", str(REPOSITORY), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()
