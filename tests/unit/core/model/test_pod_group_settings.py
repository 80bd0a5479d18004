"""Which PodGroups gangs get: of what was asked for, what is served."""

import pytest

from lockstep.core.model.pod_group_settings import VOLCANO, PodGroupKind, PodGroupSettings

BETA, ALPHA = "scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha2"


@pytest.mark.parametrize(
    ("kind", "served", "api_version", "lack"),
    [
        (PodGroupKind.DISABLED, (BETA, VOLCANO), "", ""),
        (PodGroupKind.NATIVE, (ALPHA, BETA), BETA, ""),
        (PodGroupKind.NATIVE, (ALPHA,), ALPHA, ""),
        (PodGroupKind.NATIVE, (VOLCANO,), "", "feature gates GenericWorkload and GangScheduling"),
        (PodGroupKind.VOLCANO, (VOLCANO,), VOLCANO, ""),
        (PodGroupKind.VOLCANO, (BETA,), "", "install Volcano, or set podGroups.kind to Auto or Disabled"),
        (PodGroupKind.AUTO, (VOLCANO, BETA), BETA, ""),
        (PodGroupKind.AUTO, (VOLCANO,), VOLCANO, ""),
        (PodGroupKind.AUTO, (), "", "or set podGroups.kind to Disabled"),
    ],
)
def test_a_gang_gets_the_best_group_that_is_served_or_it_is_said_what_lacks(
    kind: PodGroupKind, served: tuple[str, ...], api_version: str, lack: str
) -> None:
    settings = PodGroupSettings(kind=kind, served=served)
    assert settings.api_version == api_version
    assert lack in settings.lack
    assert bool(settings.lack) is bool(lack)


@pytest.mark.parametrize(
    ("kind", "optional"),
    [
        (PodGroupKind.DISABLED, True),
        (PodGroupKind.AUTO, True),
        (PodGroupKind.NATIVE, False),
        (PodGroupKind.VOLCANO, False),
    ],
)
def test_gangs_start_without_a_group_where_none_was_asked_for_by_name(kind: PodGroupKind, optional: bool) -> None:
    assert PodGroupSettings(kind=kind).is_optional is optional
