"""The plain manifests as docs/install.md says to apply and to remove them."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

from harness.shown_commands import ROOT, block_on, shown_on

PAGE = ROOT / "docs" / "install.md"
_REMOVAL = "kubectl delete --ignore-not-found -f manifests/install.yaml"


def write_overlay(folder: Path, registry: str) -> Path:
    """A folder for `kubectl apply -k`, with the image in a registry, whose name ends in a slash or is empty."""
    for name in ("crds", "manifests"):  # kustomize takes no file from outside, nor by a link
        copytree(ROOT / name, folder / name)
    text = block_on(PAGE, "yaml", "newName:").replace("REGISTRY/", registry)
    (folder / "kustomization.yaml").write_text(text)
    return folder


def removal() -> list[str]:
    """The arguments for kubectl that remove it and keep the runs, to be run where the manifests are."""
    (command,) = [each.line for each in shown_on(PAGE) if each.line.startswith(_REMOVAL)]
    return command.split()[1:]
