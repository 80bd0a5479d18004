"""The command line as krew installs it: an archive for each platform, and the manifest that leads to them.

    python -m cli_archive [--output DIRECTORY] [--repository URL] [--platform linux-amd64]... [--python 3.13]...

An archive holds the package `lockstep`, the dependencies of its command line at their locked versions and hashes, and
a launcher. It brings no Python: the launcher takes the first on PATH that the archive has compiled modules for. Nothing
of it is run to make it, so that one machine makes all of them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from lockstep import __version__

ROOT = Path(__file__).parents[1]
UV = ROOT / ".venv" / "bin" / "uv"
PROGRAM = "kubectl-lockstep"
PLATFORMS = {
    "linux-amd64": "x86_64-manylinux_2_28",
    "linux-arm64": "aarch64-manylinux_2_28",
    "darwin-amd64": "x86_64-apple-darwin",
    "darwin-arm64": "aarch64-apple-darwin",
}
"""As krew and as uv call them."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OF_THE_OPERATOR = ("aiohttp", "aiohttp-retry", "cryptography", "kopf", "prometheus-client", "uvloop")
"""Dependencies that no verb imports."""
LAUNCHER = """\
#!/bin/sh
for python in python3 {candidates}; do
    "$python" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] not in "{pythons}".split())' 2>/dev/null &&
        exec "$python" -I "$(dirname "$(readlink -f "$0")")/lib" "$@"
done
echo "error: kubectl lockstep needs one of Python {pythons} on PATH" >&2
exit 1
"""
MAIN = f'import sys\n\nfrom lockstep.cli.main import main\n\nsys.argv[0] = "{PROGRAM}"\nmain()\n'


def make(output: Path, platform: str, pythons: Sequence[str]) -> Path:
    """The archive of one platform. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        requirements, plugin = folder / "requirements.txt", folder / "plugin"
        pruned = [word for name in OF_THE_OPERATOR for word in ("--prune", name)]
        locked = ["export", "--locked", "--quiet", "--no-default-groups", "--no-emit-project", *pruned]
        _uv(*locked, "--output-file", requirements)
        for python in pythons:  # compiled modules have the version in their names, and all other files are the same
            target = folder / python
            wanted = ["--python-platform", PLATFORMS[platform], "--python-version", python, "--only-binary", ":all:"]
            index = os.environ.get("PIP_INDEX_URL")
            source = ["--default-index", index] if index else []
            exact = ["--no-deps", "--require-hashes", "--requirements", str(requirements)]
            _uv("pip", "install", "--quiet", *source, "--target", target, *wanted, *exact)
            shutil.rmtree(target / "bin", ignore_errors=True)
            shutil.copytree(target, plugin / "lib", dirs_exist_ok=True)
        package = ROOT / "operator" / "lockstep"
        shutil.copytree(package, plugin / "lib" / "lockstep", ignore=shutil.ignore_patterns("__pycache__"))
        (plugin / "lib" / "__main__.py").write_text(MAIN)
        shutil.copy(ROOT / "LICENSE", plugin)
        candidates = " ".join(f"python{python}" for python in reversed(pythons))
        launcher = plugin / PROGRAM
        launcher.write_text(LAUNCHER.format(candidates=candidates, pythons=" ".join(pythons)))
        launcher.chmod(0o755)
        output.mkdir(parents=True, exist_ok=True)
        return _packed(plugin, output / f"{PROGRAM}-{__version__}-{platform}.tar.gz")


def _uv(*arguments: str | Path) -> None:
    subprocess.run([UV, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def _packed(folder: Path, archive: Path) -> Path:
    """The same files become the same bytes."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as files,
    ):
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"):
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.size, entry.mode = path.stat().st_size, path.stat().st_mode & 0o755
            with path.open("rb") as content:
                files.addfile(entry, content)
    return archive


def manifest(archives: Iterable[Path], repository: str, pythons: Sequence[str]) -> str:
    """What `kubectl krew install --manifest` reads. ``repository``: the URL whose release has the archives."""
    platforms = []
    for archive in archives:
        system, _, machine = archive.name.removesuffix(".tar.gz").rpartition(f"{__version__}-")[2].partition("-")
        platforms.append({
            "selector": {"matchLabels": {"os": system, "arch": machine}},
            "uri": f"{repository}/releases/download/v{__version__}/{archive.name}",
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            "bin": PROGRAM,
        })  # fmt: skip
    spec = {
        "version": f"v{__version__}",
        "homepage": repository,
        "shortDescription": "Submit and explain LLM training runs",
        "description": (
            "Submits LLM training runs that Lockstep runs as one gang, shows why they wait,\n"
            "what they do and why they stopped, and holds, stops, saves and resumes them.\n"
        ),
        "caveats": f"It needs Python ({', '.join(pythons)}), and Lockstep in the cluster.\n",
        "platforms": platforms,
    }
    plugin = {"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin"}
    return yaml.safe_dump({**plugin, "metadata": {"name": "lockstep"}, "spec": spec}, sort_keys=False)


def main() -> None:
    """Make what is asked for, all of it by default, and say where it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--repository", default="https://REPOSITORY", help="where the archives will be released")
    parser.add_argument("--platform", action="append", choices=PLATFORMS)
    parser.add_argument("--python", action="append", choices=PYTHONS)
    asked = parser.parse_args()
    pythons = asked.python or PYTHONS
    archives = [make(asked.output, platform, pythons) for platform in asked.platform or PLATFORMS]
    leads_to_them = asked.output / "lockstep.yaml"
    leads_to_them.write_text(manifest(archives, asked.repository, pythons))
    print(*archives, leads_to_them, sep="\n")


if __name__ == "__main__":
    main()
