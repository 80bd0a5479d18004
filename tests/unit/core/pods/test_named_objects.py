"""What a run names that has to be there: which objects, and what is said where they are not."""

from typing import Any

import pytest

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.named_objects import LookedUp, MissingObject, NamedObject, ObjectKind
from lockstep.core.model.reasons import ConditionReason
from lockstep.core.model.snapshot import DryRunResult
from lockstep.core.pods.named_objects import (
    MOST_LOOKED_UP,
    absent_problems,
    misnamed_problems,
    missing_account,
    named_objects,
    reason_of,
    retry_after,
    unknown_words,
)
from support.admission import run

CLAIM, CONFIG_MAP, SECRET = ObjectKind.CLAIM, ObjectKind.CONFIG_MAP, ObjectKind.SECRET
ACCOUNT, STORAGE_CLASS = ObjectKind.SERVICE_ACCOUNT, ObjectKind.STORAGE_CLASS
OPTIONAL = {"name": "x", "optional": True}
ITEMS = [{"key": "a.py", "path": "a.py"}, {"key": "b", "path": "b"}, {"key": "a.py", "path": "c.py"}]


def spec_of(**spec: Any) -> TrainingRunSpec:
    view = run("llama", **spec)
    assert view.spec is not None
    return view.spec


def volume(**source: Any) -> dict[str, Any]:
    return {"name": "v", "mountPath": "/v", **source}


def variable(**source: Any) -> dict[str, Any]:
    return {"name": "V", "valueFrom": source}


def template(**pod: Any) -> dict[str, Any]:
    return {"spec": pod}


CASES: list[tuple[dict[str, Any], list[tuple[ObjectKind, str, str]]]] = [
    ({}, []),
    ({"serviceAccountName": "trainer"}, [(ACCOUNT, "trainer", "serviceAccountName")]),
    ({"imagePullSecrets": [{"name": "pull"}]}, [(SECRET, "pull", "imagePullSecrets[0].name")]),
    ({"envFrom": [{"configMapRef": {"name": "c"}}]}, [(CONFIG_MAP, "c", "envFrom[0].configMapRef.name")]),
    ({"envFrom": [{"secretRef": {"name": "s"}}]}, [(SECRET, "s", "envFrom[0].secretRef.name")]),
    ({"envFrom": [{"configMapRef": OPTIONAL}, {"secretRef": OPTIONAL}]}, []),
    (
        {"env": [variable(configMapKeyRef={"name": "c", "key": "k"})]},
        [
            (CONFIG_MAP, "c", "env[0].valueFrom.configMapKeyRef.name"),
            (CONFIG_MAP, "c[k]", "env[0].valueFrom.configMapKeyRef.key"),
        ],
    ),
    (
        {"env": [{"name": "A", "value": "1"}, variable(secretKeyRef={"name": "s", "key": "k"})]},
        [
            (SECRET, "s", "env[1].valueFrom.secretKeyRef.name"),
            (SECRET, "s[k]", "env[1].valueFrom.secretKeyRef.key"),
        ],
    ),
    ({"env": [variable(secretKeyRef={**OPTIONAL, "key": "k"})]}, []),
    (
        {"volumes": [volume(persistentVolumeClaim={"claimName": "data"})]},
        [(CLAIM, "data", "volumes[0].persistentVolumeClaim.claimName")],
    ),
    ({"volumes": [volume(configMap={"name": "c"})]}, [(CONFIG_MAP, "c", "volumes[0].configMap.name")]),
    ({"volumes": [volume(configMap={**OPTIONAL, "items": ITEMS})]}, []),
    (
        {"volumes": [volume(configMap={"name": "c", "items": ITEMS})], "envFrom": [{"secretRef": {"name": "s"}}]},
        [
            (SECRET, "s", "envFrom[0].secretRef.name"),
            (CONFIG_MAP, "c", "volumes[0].configMap.name"),
            (CONFIG_MAP, "c[a.py]", "volumes[0].configMap.items[0].key"),
            (CONFIG_MAP, "c[b]", "volumes[0].configMap.items[1].key"),
        ],
    ),
    (
        {"volumes": [volume(secret={"secretName": "s", "items": ITEMS[:1]})]},
        [(SECRET, "s", "volumes[0].secret.secretName"), (SECRET, "s[a.py]", "volumes[0].secret.items[0].key")],
    ),
    (
        {"volumes": [volume(projected={"sources": [{"configMap": {"name": "c", "items": ITEMS[:1]}}]})]},
        [
            (CONFIG_MAP, "c", "volumes[0].projected.sources[0].configMap.name"),
            (CONFIG_MAP, "c[a.py]", "volumes[0].projected.sources[0].configMap.items[0].key"),
        ],
    ),
    ({"volumes": [volume(secret={"secretName": "s"})]}, [(SECRET, "s", "volumes[0].secret.secretName")]),
    ({"volumes": [volume(secret={"secretName": "s", "optional": True})]}, []),
    ({"volumes": [volume(emptyDir={})]}, []),
    (
        {"volumes": [volume(projected={"sources": [{"secret": {"name": "s"}}, {"configMap": OPTIONAL}]})]},
        [(SECRET, "s", "volumes[0].projected.sources[0].secret.name")],
    ),
    ({"checkpoint": {"shared": {"claimName": "lustre"}}}, [(CLAIM, "lustre", "checkpoint.shared.claimName")]),
    (
        {
            "checkpoint": {
                "shared": {"claimName": "lustre"},
                "archive": {"uri": "s3://b/p", "credentialsSecretRef": {"name": "s3"}, "serviceAccountName": "copier"},
            }
        },
        [
            (CLAIM, "lustre", "checkpoint.shared.claimName"),
            (SECRET, "s3", "checkpoint.archive.credentialsSecretRef.name"),
            (ACCOUNT, "copier", "checkpoint.archive.serviceAccountName"),
        ],
    ),
    (
        {"podTemplate": template(serviceAccountName="a", imagePullSecrets=[{"name": "p"}])},
        [
            (ACCOUNT, "a", "podTemplate.spec.serviceAccountName"),
            (SECRET, "p", "podTemplate.spec.imagePullSecrets[0].name"),
        ],
    ),
    (
        {"podTemplate": template(containers=[{"name": "side", "envFrom": [{"secretRef": {"name": "s"}}]}])},
        [(SECRET, "s", "podTemplate.spec.containers[0].envFrom[0].secretRef.name")],
    ),
    (
        {
            "podTemplate": template(
                volumes=[
                    {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}},
                    {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
                ]
            )
        },
        [
            (STORAGE_CLASS, "fast", "podTemplate.spec.volumes[0].ephemeral.volumeClaimTemplate.spec.storageClassName"),
            (CLAIM, "data", "podTemplate.spec.volumes[1].persistentVolumeClaim.claimName"),
        ],
    ),
]


@pytest.mark.parametrize(("spec", "named"), CASES)
def test_what_a_run_needs_is_found_by_the_field_that_names_it(
    spec: dict[str, Any], named: list[tuple[ObjectKind, str, str]]
) -> None:
    found = named_objects(spec_of(**spec))
    shown = [(each.kind, each.name + (f"[{each.key}]" if each.key else ""), each.field) for each in found]
    assert shown == [(kind, name, f"spec.{field}") for kind, name, field in named]


def test_what_is_named_twice_is_looked_up_once() -> None:
    checkpoint = {"shared": {"claimName": "data"}}
    spec = spec_of(volumes=[volume(persistentVolumeClaim={"claimName": "data"})], checkpoint=checkpoint)
    assert [each.field for each in named_objects(spec)] == ["spec.volumes[0].persistentVolumeClaim.claimName"]


@pytest.mark.parametrize("name", ["../../default/secrets/x", "a/b", "A", "a b", "", "a?x=1", "x" * 300, 7, None, ["a"]])
def test_what_is_no_name_of_an_object_is_asked_of_nobody(name: object) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    spec = spec_of(podTemplate=template(volumes=volumes))
    assert named_objects(spec) == ()
    told = [each.field for each in misnamed_problems(spec)]
    is_told = isinstance(name, str) and bool(name)
    assert told == ["spec.podTemplate.spec.volumes[0].persistentVolumeClaim.claimName"] * is_told


def test_of_very_many_names_that_are_none_a_few_are_told() -> None:
    volumes = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": "A" * 70_000}} for n in range(200)]
    problems = list(misnamed_problems(spec_of(podTemplate=template(volumes=volumes))))
    assert len(problems) == 8
    assert all(len(each.message) < 300 for each in problems)


@pytest.mark.parametrize("key", ["", "a/b", "../", "a b", "x" * 300, 7, None, ["a"]])
def test_what_is_no_name_of_an_entry_is_asked_of_nobody(key: object) -> None:
    volumes = [{"name": "v", "configMap": {"name": "c", "items": [{"key": key, "path": "p"}]}}]
    assert [each.key for each in named_objects(spec_of(podTemplate=template(volumes=volumes)))] == [""]


@pytest.mark.parametrize("pod", [[], "x", {"volumes": {}}, {"volumes": ["x"]}, {"containers": [{"env": 3}]}])
def test_a_template_that_makes_no_sense_names_nothing(pod: object) -> None:
    assert named_objects(spec_of(podTemplate={"spec": pod})) == ()


def test_of_very_many_names_so_many_are_looked_up() -> None:
    volumes = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}} for n in range(5000)]
    assert len(named_objects(spec_of(podTemplate=template(volumes=volumes)))) == MOST_LOOKED_UP


def test_of_very_many_entries_so_many_are_looked_up_and_no_object_is_left_out_for_them() -> None:
    items = [{"key": f"k{n}", "path": f"k{n}"} for n in range(5000)]
    volumes = [{"name": "v", "configMap": {"name": "c", "items": items}}]
    volumes.append({"name": "d", "persistentVolumeClaim": {"claimName": "data"}})
    found = named_objects(spec_of(podTemplate=template(volumes=volumes)))
    assert [each.name for each in found if not each.key] == ["c", "data"]
    assert len(found) == 2 + MOST_LOOKED_UP


def missing(kind: ObjectKind, *near: str) -> MissingObject:
    return MissingObject(NamedObject(kind, "dta", "spec.x"), near)


@pytest.mark.parametrize(
    ("absent", "words", "reason"),
    [
        (
            missing(CLAIM, "data"),
            "there is no PersistentVolumeClaim dta in namespace team; did you mean data? Else create it, or name",
            ConditionReason.CLAIM_NOT_FOUND,
        ),
        (
            missing(CONFIG_MAP),
            "there is no ConfigMap dta in namespace team; create it, or name another",
            ConditionReason.CONFIG_MAP_NOT_FOUND,
        ),
        (
            missing(SECRET),
            "there is no Secret dta in namespace team; create it, or name another",
            ConditionReason.SECRET_NOT_FOUND,
        ),
        (
            missing(ACCOUNT),
            "there is no ServiceAccount dta in namespace team; create it, or name another",
            ConditionReason.SERVICE_ACCOUNT_NOT_FOUND,
        ),
        (
            missing(STORAGE_CLASS, "fast"),
            "there is no StorageClass dta; create it, or name another",
            ConditionReason.STORAGE_CLASS_NOT_FOUND,
        ),
    ],
)
def test_what_is_missing_is_told_with_its_field_and_the_remedy(
    absent: MissingObject, words: str, reason: ConditionReason
) -> None:
    (problem,) = absent_problems([absent], "team")
    assert (problem.field, reason_of(absent)) == ("spec.x", reason)
    assert problem.message.startswith(words)
    assert problem.message.endswith(", or name another")


def test_an_entry_that_is_missing_is_told_with_those_that_may_be_meant() -> None:
    absent = MissingObject(NamedObject(CONFIG_MAP, "code", "spec.x.key", "trian.py"), ("train.py",))
    (problem,) = absent_problems([absent], "team")
    assert (problem.field, problem.message, reason_of(absent)) == (
        "spec.x.key",
        "ConfigMap code in namespace team has no key trian.py; did you mean train.py? Else add it, or name another",
        ConditionReason.CONFIG_MAP_KEY_NOT_FOUND,
    )


@pytest.mark.parametrize(
    ("accepted", "message", "found"),
    [
        (False, 'error looking up service account team/bot: serviceaccount "bot" not found', True),
        (False, 'error looking up service account team/bot2: serviceaccount "bot2" not found', False),
        (False, "exceeded quota", False),
        (None, 'serviceaccount "bot" not found', False),
        (True, "", False),
    ],
)
def test_that_the_service_account_is_missing_is_what_the_api_server_says_of_the_pod(
    accepted: bool | None, message: str, found: bool
) -> None:
    answer = DryRunResult(1, accepted, message)
    assert bool(missing_account(spec_of(serviceAccountName="bot"), answer)) is found
    assert missing_account(spec_of(), answer) == ()


def test_what_nobody_could_look_for_is_said() -> None:
    unknown = tuple(NamedObject(SECRET, f"s{n}", f"spec.envFrom[{n}].secretRef.name") for n in range(5))
    assert unknown_words(LookedUp()) == ""
    assert unknown_words(LookedUp(unknown=unknown[:1])) == (
        "; not looked up, as the operator cannot: Secret s0 (spec.envFrom[0].secretRef.name)"
    )
    assert unknown_words(LookedUp(unknown=unknown)).endswith(" and 2 more")
    entry = NamedObject(CONFIG_MAP, "c", "spec.x.key", "k")
    assert unknown_words(LookedUp(unknown=(entry,))).endswith(": key k of ConfigMap c (spec.x.key)")


@pytest.mark.parametrize(("waited", "pause"), [(0.0, 5.0), (20.0, 5.0), (80.0, 20.0), (240.0, 60.0), (1e6, 60.0)])
def test_it_is_looked_for_again_soon_at_first_and_then_once_a_minute(waited: float, pause: float) -> None:
    assert retry_after(waited) == pause
