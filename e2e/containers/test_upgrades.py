"""A release follows another one, and is taken back, while a gang trains: no pod of it is another, no attempt ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from containers.site import KindSite
from containers.test_operator import SECONDS, begun, fail_and_recover, leader, operators, seen_of
from harness.kube import OPERATOR_NAMESPACE
from harness.previous import Previous, previous
from harness.training import TrainingRun
from kindcluster import images
from kindcluster import site as installation
from kindcluster.cluster import CONTROL_PLANE
from localcluster.build import REPOSITORY

pytestmark = pytest.mark.containers
NAMESPACE = ("--namespace", OPERATOR_NAMESPACE)
WAIT = ("--wait", "--timeout", "5m")


@pytest.mark.nightly
def test_chart_and_image_follow_those_of_the_commit_before_and_go_back_under_a_gang(
    site: KindSite, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind, old = site.kind, previous(tmp_path_factory.mktemp("previous"))
    current = (kind.folder / installation.OPERATOR_IMAGE).read_text()
    underneath = images.base(kind.docker, kind.folder, print)
    former = images.former_operator(kind.docker, underneath, old.folder, old.commit, print)
    kind.load([former], [CONTROL_PLANE], print)
    remove(site)
    upgraded: set[str] = set()
    try:
        installation.install(kind, former, print, chart=old.chart, values=values_of(old))
        run, before = begun(site, "upgraded"), set(operators(site))
        assert images_of(site) == {former}

        seen = seen_of(run)
        upgrade(site, f"image.tag={current.rpartition(':')[2]}")
        leads_anew(site, run, before)
        assert images_of(site) == {current}
        site.outgoing |= before
        assert seen_of(run) == seen
        fail_and_recover(site, run)
        assert site.refusals() == [], "the operator may not do what it does"

        upgraded, seen = set(operators(site)), seen_of(run)
        installation.helm(kind, "rollback", installation.RELEASE, "1", *NAMESPACE, *WAIT)
        leads_anew(site, run, upgraded)
        assert images_of(site) == {former}
        assert seen_of(run) == seen
        fail_and_recover(site, run, rank=0)
        assert [entry["number"] for entry in run.attempts] == [1, 2, 3]
    finally:
        site.outgoing |= set(operators(site)) | upgraded
        remove(site)
        installation.install(kind, current, print)


def values_of(old: Previous) -> Path:
    """Those that its chart takes."""
    at_that_time = old.folder / installation.VALUES.relative_to(REPOSITORY)
    return at_that_time if at_that_time.exists() else installation.VALUES


def remove(site: KindSite) -> None:
    installation.helm(site.kind, "uninstall", installation.RELEASE, *NAMESPACE, "--ignore-not-found", *WAIT)


def upgrade(site: KindSite, change: str) -> None:
    """As docs/install.md says it."""
    release: list[str | Path] = [installation.RELEASE, installation.CHART, *NAMESPACE]
    installation.helm(site.kind, "upgrade", *release, "--reset-then-reuse-values", "--set-string", change, *WAIT)


def leads_anew(site: KindSite, run: TrainingRun, before: set[str]) -> None:
    """Until the operators that were there ``before`` are gone, and another one leads."""
    run.wait("only new operators are there", lambda: not before & set(operators(site)), SECONDS)
    run.wait("one of them leads", lambda: leader(site) not in ("", *before), SECONDS)


def images_of(site: KindSite) -> set[str]:
    """What the operators run."""
    pods = site.world.kubectl.json("get", "pods", *NAMESPACE, "--selector=app.kubernetes.io/name=lockstep")["items"]
    return {pod["spec"]["containers"][0]["image"] for pod in pods}
