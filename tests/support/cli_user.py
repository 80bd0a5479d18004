"""A user of the command line with rights in one namespace."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.site import Site
from lockstep.cli.main import main


class User:
    """Types commands as a service account that is bound to ``lockstep-edit`` in one namespace."""

    def __init__(self, site: Site, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.namespace = namespace
        self._capsys = capsys
        cluster = site.cluster
        cluster.kubectl("-n", namespace, "create", "serviceaccount", "user")
        role = "--clusterrole=lockstep-edit"
        cluster.kubectl("-n", namespace, "create", "rolebinding", "user", role, f"--serviceaccount={namespace}:user")
        content = yaml.safe_load(cluster.kubeconfig_for_service_account(namespace, "user").read_text())
        content["contexts"][0]["context"]["namespace"] = namespace
        self._kubeconfig = cluster.kubeconfig.parent / f"{namespace}.kubeconfig"
        self._kubeconfig.write_text(yaml.safe_dump(content))
        self.notes = ""

    def types(self, *words: str, code: int = 0, kubeconfig: Path | None = None) -> str:
        """Standard output of `lockstep WORDS`, which must end with ``code``."""
        split = words.index("--") if "--" in words else len(words)
        flags = ("--kubeconfig", str(kubeconfig or self._kubeconfig))
        with pytest.raises(SystemExit) as end:
            main([*words[:split], *flags, *words[split:]])
        said = self._capsys.readouterr()
        self.notes = said.err
        assert (end.value.code or 0) == code, said
        return said.out
