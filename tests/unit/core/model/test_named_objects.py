"""Kinds of what runs name."""

from lockstep.core.model.named_objects import ObjectKind


def test_all_but_storage_classes_are_of_the_runs_own_namespace() -> None:
    assert {kind for kind in ObjectKind if not kind.is_namespaced} == {ObjectKind.STORAGE_CLASS}
