"""What the pods of a run need that somebody else has to make: found in its spec, and told when it is not there.

Kubernetes has pods that name what is missing wait for it on their nodes, which nobody else gets meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.named_objects import LookedUp, MissingObject, NamedObject, ObjectKind
from lockstep.core.model.near_names import suggestion
from lockstep.core.model.problems import Problem
from lockstep.core.model.reasons import ConditionReason
from lockstep.core.model.sanitise import line
from lockstep.core.model.snapshot import DryRunResult
from lockstep.core.pods.pod_template import items, section

MOST_LOOKED_UP = 64
"""Objects of one run, and entries of them. A podTemplate may name any number; what is beyond is left for the kubelet to
find missing."""
_MOST_MISNAMED = 8
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_REASONS = {
    ObjectKind.CLAIM: ConditionReason.CLAIM_NOT_FOUND,
    ObjectKind.CONFIG_MAP: ConditionReason.CONFIG_MAP_NOT_FOUND,
    ObjectKind.SECRET: ConditionReason.SECRET_NOT_FOUND,
    ObjectKind.SERVICE_ACCOUNT: ConditionReason.SERVICE_ACCOUNT_NOT_FOUND,
    ObjectKind.STORAGE_CLASS: ConditionReason.STORAGE_CLASS_NOT_FOUND,
}
_AGAIN_FIRST, _AGAIN_LAST, _SHARE = 5.0, 60.0, 0.25


def named_objects(spec: TrainingRunSpec) -> tuple[NamedObject, ...]:
    """Each once, by the first field that names it, and after them the entries that they are to have. What may be
    missing is left out, and what is no name at all (``misnamed_problems``)."""
    objects: dict[tuple[ObjectKind, str, str], NamedObject] = {}
    entries: dict[tuple[ObjectKind, str, str], NamedObject] = {}
    for named in _named(spec):
        found, legible = (entries, _KEY.fullmatch(named.key)) if named.key else (objects, True)
        if legible and _NAME.fullmatch(named.name) and len(found) < MOST_LOOKED_UP:
            found.setdefault((named.kind, named.name, named.key), named)
    return (*objects.values(), *entries.values())


def misnamed_problems(spec: TrainingRunSpec) -> Iterator[Problem]:
    """What no object can be called, so that nobody need look: a few of them. An empty name is for the API server, which
    takes it in some places."""
    misnamed = (each for each in _named(spec) if each.name and not _NAME.fullmatch(each.name))
    for each in islice(misnamed, _MOST_MISNAMED):
        words = f"no {each.kind} can be called {line(each.name)[:64]}: names are of lower case letters, digits, - and ."
        yield Problem(each.field, f"{words}; write the name as it is in the cluster")


def absent_problems(missing: Iterable[MissingObject], namespace: str) -> Iterator[Problem]:
    """Each in words, with what may have been meant."""
    for each in missing:
        named = each.named
        where = f" in namespace {namespace}" if named.kind.is_namespaced else ""
        meant = suggestion(named.key or named.name, each.near)
        if named.key:
            words = f"{named.kind} {named.name}{where} has no key {named.key}; {meant}add it, or name another"
            yield Problem(named.field, words)
            continue
        yield Problem(named.field, f"there is no {named.kind} {named.name}{where}; {meant}create it, or name another")


def missing_account(spec: TrainingRunSpec, answer: DryRunResult) -> tuple[MissingObject, ...]:
    """The service account, where the API server refuses the pod for the lack of it: that takes no right to look."""
    if answer.accepted is not False:
        return ()
    return tuple(
        MissingObject(named)
        for named in named_objects(spec)
        if named.kind is ObjectKind.SERVICE_ACCOUNT and f'serviceaccount "{named.name}" not found' in answer.message
    )


def reason_of(missing: MissingObject) -> ConditionReason:
    """Of its kind."""
    if missing.named.key:
        return ConditionReason.CONFIG_MAP_KEY_NOT_FOUND
    return _REASONS[missing.named.kind]


def unknown_words(looked_up: LookedUp) -> str:
    """What nobody has looked for; empty where that is nothing."""
    unknown = ", ".join(f"{_shown(each)} ({each.field})" for each in looked_up.unknown[:3])
    more = f" and {len(looked_up.unknown) - 3} more" if len(looked_up.unknown) > 3 else ""
    return f"; not looked up, as the operator cannot: {unknown}{more}" if unknown else ""


def _shown(named: NamedObject) -> str:
    return f"key {named.key} of {named.kind} {named.name}" if named.key else f"{named.kind} {named.name}"


def retry_after(waited: float) -> float:
    """Seconds until what was missing is looked up again, ``waited`` seconds after it first was: soon while somebody is
    there who mends it, and seldom where nobody does."""
    return min(max(_AGAIN_FIRST, waited * _SHARE), _AGAIN_LAST)


def _named(spec: TrainingRunSpec) -> Iterator[NamedObject]:
    if spec.service_account_name:
        yield NamedObject(ObjectKind.SERVICE_ACCOUNT, spec.service_account_name, "spec.serviceAccountName")
    for index, secret in enumerate(spec.image_pull_secrets):
        yield NamedObject(ObjectKind.SECRET, secret.name, f"spec.imagePullSecrets[{index}].name")
    if spec.env or spec.env_from or spec.volumes:
        raw = spec.model_dump(mode="json", exclude_none=True, include={"env", "env_from", "volumes"})
        yield from _of_container(raw, "spec")
        yield from _of_volumes(items(raw, "volumes"), "spec.volumes")
    checkpoint = spec.checkpoint
    if checkpoint is not None and checkpoint.shared is not None:
        yield NamedObject(ObjectKind.CLAIM, checkpoint.shared.claim_name, "spec.checkpoint.shared.claimName")
    if checkpoint is not None and checkpoint.archive is not None:
        archive, field = checkpoint.archive, "spec.checkpoint.archive"
        if archive.credentials_secret_ref is not None:
            name = archive.credentials_secret_ref.name
            yield NamedObject(ObjectKind.SECRET, name, f"{field}.credentialsSecretRef.name")
        if archive.service_account_name:
            yield NamedObject(ObjectKind.SERVICE_ACCOUNT, archive.service_account_name, f"{field}.serviceAccountName")
    yield from _of_pod(section(spec.pod_template, "spec"), "spec.podTemplate.spec")


def _of_pod(pod: Mapping[str, Any], at: str) -> Iterator[NamedObject]:
    yield from _of(ObjectKind.SERVICE_ACCOUNT, pod, "serviceAccountName", at)
    for index, secret in enumerate(_first(pod, "imagePullSecrets")):
        yield from _of(ObjectKind.SECRET, secret, "name", f"{at}.imagePullSecrets[{index}]")
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(_first(pod, kind)):
            yield from _of_container(container, f"{at}.{kind}[{index}]")
    yield from _of_volumes(_first(pod, "volumes"), f"{at}.volumes")


def _of_container(container: Mapping[str, Any], at: str) -> Iterator[NamedObject]:
    for index, source in enumerate(_first(container, "envFrom")):
        field = f"{at}.envFrom[{index}]"
        yield from _needed(ObjectKind.CONFIG_MAP, section(source, "configMapRef"), "name", f"{field}.configMapRef")
        yield from _needed(ObjectKind.SECRET, section(source, "secretRef"), "name", f"{field}.secretRef")
    for index, variable in enumerate(_first(container, "env")):
        field, source = f"{at}.env[{index}].valueFrom", section(variable, "valueFrom")
        for kind, key in ((ObjectKind.CONFIG_MAP, "configMapKeyRef"), (ObjectKind.SECRET, "secretKeyRef")):
            wanted = section(source, key)
            yield from _needed(kind, wanted, "name", f"{field}.{key}", (("key", wanted.get("key")),))


def _of_volumes(volumes: Sequence[Mapping[str, Any]], at: str) -> Iterator[NamedObject]:
    for index, volume in enumerate(volumes):
        field = f"{at}[{index}]"
        claim = section(volume, "persistentVolumeClaim")
        yield from _of(ObjectKind.CLAIM, claim, "claimName", f"{field}.persistentVolumeClaim")
        yield from _with_items(ObjectKind.CONFIG_MAP, section(volume, "configMap"), "name", f"{field}.configMap")
        yield from _with_items(ObjectKind.SECRET, section(volume, "secret"), "secretName", f"{field}.secret")
        for number, source in enumerate(_first(section(volume, "projected"), "sources")):
            where = f"{field}.projected.sources[{number}]"
            yield from _with_items(ObjectKind.CONFIG_MAP, section(source, "configMap"), "name", f"{where}.configMap")
            yield from _with_items(ObjectKind.SECRET, section(source, "secret"), "name", f"{where}.secret")
        template = section(volume, "ephemeral", "volumeClaimTemplate", "spec")
        where = f"{field}.ephemeral.volumeClaimTemplate.spec"
        yield from _of(ObjectKind.STORAGE_CLASS, template, "storageClassName", where)


def _with_items(kind: ObjectKind, owner: Mapping[str, Any], key: str, at: str) -> Iterator[NamedObject]:
    """What is mounted, whole or by entry."""
    entries = ((f"items[{number}].key", item.get("key")) for number, item in enumerate(_first(owner, "items")))
    yield from _needed(kind, owner, key, at, entries)


def _needed(
    kind: ObjectKind, owner: Mapping[str, Any], key: str, at: str, entries: Iterable[tuple[str, object]] = ()
) -> Iterator[NamedObject]:
    """The object that ``key`` of ``owner`` names, and those of its ``entries`` that are needed, by their fields."""
    if owner.get("optional") is True:
        return
    for named in _of(kind, owner, key, at):
        yield named
        yield from (
            NamedObject(kind, named.name, f"{at}.{field}", entry)
            for field, entry in entries
            if isinstance(entry, str) and entry
        )


def _of(kind: ObjectKind, owner: Mapping[str, Any], key: str, at: str) -> Iterator[NamedObject]:
    name = owner.get(key)
    if isinstance(name, str):
        yield NamedObject(kind, name, f"{at}.{key}")


def _first(owner: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects of a list, as many as an ordinary pod has at most."""
    value = owner.get(key)
    return [item for item in islice(value, 256) if isinstance(item, Mapping)] if isinstance(value, list) else []
