"""Arrays at the command line: what is created, patched and shown, and what is refused in whose words."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.cli import arrays, runs
from lockstep.cli.actions import change, hold
from lockstep.cli.errors import ApiServerError, CliError, UsageError
from lockstep.cli.main import main
from lockstep.cli.options import Chosen
from lockstep.cli.submission import refusals
from lockstep.cli.submission.taken_names import refuse_taken
from lockstep.cli.views import array_status, explain, queue
from lockstep.core.model.own_objects import parse_run_set
from lockstep.present.arrays import folded
from support import sample_runs as sample
from support.cli_server import CliServer
from support.sample_runs import NOW

GOLDEN = Path(__file__).parent / "golden" / "cli"
SWEEP_UID = "0c0ffee0-0000-4000-8000-000000000000"


def sweep(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """An array of a hundred, eight at once."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_SET_KIND,
        "metadata": {
            "name": "sweep",
            "namespace": "team",
            "uid": SWEEP_UID,
            "generation": 1,
            "resourceVersion": "9",
            "creationTimestamp": sample.at(7200),
        },
        "spec": {"indices": "0-99", "maxRunning": 8, "template": {"spec": sample.SPEC}} | spec,
        "status": status or {},
    }


def of_sweep(raw: dict[str, Any], index: int) -> dict[str, Any]:
    """A run of it."""
    owner = {"apiVersion": names.API_VERSION, "kind": names.RUN_SET_KIND, "name": "sweep", "uid": SWEEP_UID}
    metadata = {"name": f"sweep-{index}", "uid": f"uid-{index}", "ownerReferences": [owner]}
    return raw | {"metadata": raw["metadata"] | metadata}


AT_WORK = {
    "observedGeneration": 1,
    "state": "Running",
    "reason": "RunsActive",
    "done": "43/100",
    "counts": {"total": 100, "pending": 55, "running": 2, "succeeded": 41, "failed": 1, "cancelled": 1},
    "indices": {"active": "43-46", "succeeded": "0-40", "failed": "41", "cancelled": "42"},
}
STUCK = AT_WORK | {
    "conditions": [
        sample.condition("Accepted", "True", "Accepted"),
        sample.condition("Progressing", "False", "NameTaken", "there are runs sweep-50 that are not of this set"),
    ],
    "stop": {"reason": "StoppedOnFailure", "message": "1 index has failed: 41", "time": sample.at(60)},
}
RUNS = [
    of_sweep(sample.running(), 43),
    of_sweep(sample.recovering(), 44),
    of_sweep(sample.pending(position=3, updated=sample.at(30), priority=7), 46),
    of_sweep(sample.pending(position=2, updated=sample.at(30), priority=8), 45),
]


def in_the_queue(**changes: Any) -> list[str]:
    views = [runs.view(raw) for raw in (*RUNS, sample.pending("other", position=1))]
    single, pending = folded(views, [parse_run_set(sweep(AT_WORK, **changes))])
    return queue.listing(single, False, False, NOW, pending)


def paged(status: dict[str, Any], **spec: Any) -> list[str]:
    return list(array_status.page(parse_run_set(sweep(status, **spec)), [runs.view(raw) for raw in RUNS]))


def test_a_run_whose_nodes_are_too_many_for_its_status_runs() -> None:
    large = of_sweep(sample.running(), 43)
    large["status"]["assignment"] = {"hash": "h", "configMap": "large"}
    lines = list(array_status.page(parse_run_set(sweep(AT_WORK)), [runs.view(large)]))
    assert [line.split() for line in lines if line.startswith("running")] == [["running", "1", "43"]]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("queue-array", in_the_queue),
        ("status-array", lambda: paged(AT_WORK)),
        ("status-array-stuck", lambda: paged(STUCK, afterCorr="prepare")),
        ("status-array-new", lambda: list(array_status.page(parse_run_set(sweep()), []))),
    ],
)
def test_what_is_shown_of_an_array(name: str, lines: Any) -> None:
    file = GOLDEN / f"{name}.txt"
    text = "\n".join(lines()) + "\n"
    if os.environ.get("LOCKSTEP_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize(
    ("status", "spec", "label", "state"),
    [
        ({}, {}, "sweep_[0-99%8]", ("Pending", "NotSeenYet")),
        ({}, {"suspend": True, "maxRunning": None}, "sweep_[0-99]", ("Suspended", "Held")),
        ({"indices": {"succeeded": "0-7"}}, {"suspend": True}, "sweep_[8-99%8]", ("Suspended", "Suspended")),
        ({}, {"indices": "0-98:2"}, "sweep_[0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,...%8]", ("Pending", "NotSeenYet")),
        ({"state": "Running", "indices": {"active": "0-7"}}, {}, "sweep_[8-99%8]", ("Pending", "MaxRunning")),
    ],
)
def test_a_row_says_which_indices_wait_and_why(
    status: dict[str, Any], spec: dict[str, Any], label: str, state: tuple[str, str]
) -> None:
    raw = sweep(status, **spec)
    raw["spec"] = {field: value for field, value in raw["spec"].items() if value is not None}
    held = [runs.view(of_sweep(sample.running(), index)) for index in range(8)] if status else []
    _, [pending] = folded(held, [parse_run_set(raw)])
    assert (pending.name, pending.state) == (label, state)


def test_a_run_that_its_user_holds_has_a_row_of_its_own() -> None:
    held = sample.run("x", status={"state": "Suspended", "reason": "SuspendRequested"}, suspend=True)
    single, [pending] = folded([runs.view(of_sweep(held, 43))], [parse_run_set(sweep(AT_WORK))])
    assert [run.name for run in single] == ["sweep-43"]
    assert 43 not in pending.indices


@pytest.mark.parametrize(("raw", "reason"), [(sample.pending(), "Held"), (sample.running(), "Suspended")])
def test_an_array_is_held_and_not_suspended_while_none_of_its_runs_has_begun(raw: dict[str, Any], reason: str) -> None:
    view = parse_run_set(sweep({"indices": {"active": "0"}, "counts": {"total": 100, "pending": 100}}, suspend=True))
    _, [pending] = folded([runs.view(of_sweep(raw, 0))], [view])
    assert pending.state == ("Suspended", reason)
    assert folded([], [parse_run_set(sweep(AT_WORK, suspend=True))])[1][0].state == ("Suspended", "Suspended")


def with_run(own: bool, **spec: Any) -> CliServer:
    """The set, and one of its runs, which its user holds or not."""
    run = RUNS[3] | {"spec": RUNS[3]["spec"] | {"suspend": own}}
    return CliServer({"trainingrunsets/sweep": sweep(AT_WORK, **spec), "trainingruns/sweep-45": run})


@pytest.mark.parametrize(
    ("own", "spec", "words"),
    [
        (False, {"suspend": True}, "by suspend: true of its set sweep. Next: it waits for lockstep resume sweep."),
        (True, {"suspend": True}, "suspended. Next: it waits for lockstep resume sweep-45 (suspend: false)."),
        (False, {"indices": "x"}, "as the spec of its set sweep cannot be read. Next: it waits for that to be"),
    ],
)
def test_a_run_that_its_array_suspends_is_explained_so_and_does_not_start_next(
    own: bool, spec: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explain.show(with_run(own, **spec), "sweep-45", "text", "lockstep-system")
    said = capsys.readouterr().out
    assert words in said
    assert "Computed now" not in said


@pytest.mark.parametrize("verb", ["resume", "release"])
def test_a_run_that_goes_on_only_with_its_array_is_not_said_to_go_on(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def act(server: CliServer) -> None:
        chosen = Chosen(["sweep-45"])
        if verb == "resume":
            change.apply(server, chosen, change.RESUME)
        else:
            hold.release(server, chosen, by_queue=False)

    server = with_run(False, suspend=True)
    with pytest.raises(CliError, match="sweep-45 is suspended with its array sweep") as raised:
        act(server)
    assert raised.value.remedy == f"lockstep {verb} sweep has all its runs go on"
    assert not server.patches
    held = with_run(True, suspend=True)
    act(held)
    assert held.patches == [("trainingruns/sweep-45", {"spec": {"suspend": False}})]
    assert f"suspended with its array sweep; lockstep {verb} sweep has" in capsys.readouterr().err
    act(with_run(False))
    assert "sweep-45 is not" in capsys.readouterr().err


def test_a_status_that_is_no_ranges_spoils_nobodys_queue() -> None:
    _, [pending] = folded([], [parse_run_set(sweep({"indices": {"active": "x", "succeeded": "0-40"}}))])
    assert min(pending.indices) == 41


def test_an_array_in_which_nobody_waits_has_no_row() -> None:
    view = parse_run_set(sweep({"indices": {"succeeded": "0-98"}}))
    assert folded([runs.view(of_sweep(sample.running(), 99))], [view])[1] == []


# -- submit -------------------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    with pytest.raises(SystemExit) as end:
        main(["submit", "--dry-run=client", "-o", "json", *words])
    said = capsys.readouterr()
    assert not end.value.code, said.err
    made: dict[str, Any] = json.loads(said.out)
    return made


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(["submit", "--dry-run=client", *words])
    assert end.value.code in (1, 2)
    return " ".join(capsys.readouterr().err.split())


COMMAND = ("--image", "trainer", "--", "python", "train.py")


def test_an_array_is_submitted_as_with_sbatch(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--name", "sweep", "-N", "2", "-a", "0-99%8", "-d", "afterok:tokenize,aftercorr:prepare", "--hold")
    made = printed(capsys, *flags, "-t", "2h", *COMMAND)
    assert (made["kind"], made["metadata"]) == ("TrainingRunSet", {"name": "sweep"})
    spec = made["spec"]
    ours = {field: value for field, value in spec.items() if field != "template"}
    assert ours == {"indices": "0-99", "maxRunning": 8, "afterCorr": "prepare", "suspend": True}
    assert spec["template"]["spec"] == {
        "nodes": 2,
        "image": "trainer",
        "command": ["python", "train.py"],
        "timeLimit": "2h",
        "dependsOn": [{"name": "tokenize", "condition": "Succeeded"}],
    }


def test_a_name_for_an_array_leaves_room_for_its_indices(capsys: pytest.CaptureFixture[str]) -> None:
    made = printed(capsys, "-a", "1", "--image", "i", "--", "python", f"{'long-' * 12}name.py")
    assert len(made["metadata"]["generateName"]) + 5 <= names.MAX_RUN_SET_NAME


def test_a_manifest_of_a_run_becomes_an_array(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    annotations = {"note": "x", names.ANNOTATION_USER: "kim"}
    metadata = {"name": "sweep", "labels": {"team": "nlp"}, "annotations": annotations}
    body = sample.run() | {"metadata": metadata}
    del body["status"]
    file.write_text(json.dumps(body))
    made = printed(capsys, str(file), "--array", "1,3")
    assert made["metadata"] == metadata
    assert made["spec"]["template"]["metadata"] == {"labels": {"team": "nlp"}, "annotations": {"note": "x"}}
    assert "maxRunning" not in made["spec"]


def test_a_manifest_of_an_array_is_taken_and_flags_go_where_they_belong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "set.yaml"
    body = sweep()
    del body["status"]
    file.write_text(json.dumps(body))
    made = printed(capsys, str(file), "-H", "-t", "90", "-d", "aftercorr:prepare")
    assert (made["spec"]["suspend"], made["spec"]["afterCorr"]) == (True, "prepare")
    assert made["spec"]["template"]["spec"]["timeLimit"] == "1h30m"
    body["spec"]["template"]["spec"] = sample.SPEC | {"gpuPerNode": 8}
    file.write_text(json.dumps(body))
    assert "spec.template.spec.gpuPerNode: unknown field; write gpusPerNode" in refused(capsys, str(file))
    body["spec"]["template"]["spec"] = sample.SPEC | {"resourcesPerNode": {"gpu": 8}}
    file.write_text(json.dumps(body))
    assert "spec.template.spec.resourcesPerNode[gpu]: is no resource" in refused(capsys, str(file))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-a", "9-0", *COMMAND), "a range goes up"),
        (("-a", "0-9%x", *COMMAND), "no width behind the %"),
        (("-a", "0-9%0", *COMMAND), "would let nothing start"),
        (("-a", "0-20000", *COMMAND), "more than 10000 indices"),
        (("-d", "aftercorr:prepare", *COMMAND), "aftercorr is for arrays"),
        (("-a", "0", "-d", "aftercorr:a:b", *COMMAND), "an array comes after one"),
        (("-a", "0", "-d", "aftercorr", *COMMAND), "names no run"),
    ],
)
def test_what_no_array_can_be_made_of_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert said in refused(capsys, *words)


@pytest.mark.parametrize("flag", ["--wait", "--test-only"])
def test_what_is_for_single_runs_is_refused(capsys: pytest.CaptureFixture[str], flag: str) -> None:
    with pytest.raises(SystemExit):
        main(["submit", "-a", "0-3", flag, *COMMAND])
    assert "are for single runs" in capsys.readouterr().err


def test_a_problem_of_the_template_is_named_where_it_stands() -> None:
    with pytest.raises(CliError, match=r"spec.template.spec.resourcesPerNode\[gpu\]"):
        refusals.refuse_bad(sweep(template={"spec": sample.SPEC | {"resourcesPerNode": {"gpu": 8}}}), {})


# -- cancel and the like ------------------------------------------------------------------------


def with_sweep(conflicts: int = 0, refusals: dict[str, BaseException] | None = None, **spec: Any) -> CliServer:
    """One set and one of its runs."""
    there = {"trainingrunsets/sweep": sweep(AT_WORK, **spec), "trainingruns/sweep-43": RUNS[0]}
    return CliServer(there, conflicts=conflicts, refusals=refusals)


def apply(server: CliServer, word: str, what: change.Change = change.CANCEL) -> None:
    change.apply(server, Chosen([word]), what)


@pytest.mark.parametrize(
    ("word", "what", "place", "spec"),
    [
        ("sweep", change.CANCEL, "trainingrunsets/sweep", {"cancel": True}),
        ("sweep", change.SUSPEND, "trainingrunsets/sweep", {"suspend": True}),
        ("sweep", change.RESUME, "trainingrunsets/sweep", {"suspend": False}),
        ("sweep_[3-5,9]", change.CANCEL, "trainingrunsets/sweep", {"cancelIndices": "3-5,9"}),
        ("sweep_7", change.CANCEL, "trainingrunsets/sweep", {"cancelIndices": "7"}),
        ("sweep-60", change.CANCEL, "trainingrunsets/sweep", {"cancelIndices": "60"}),
        ("sweep-43", change.CANCEL, "trainingruns/sweep-43", {"cancel": True}),
    ],
)
def test_what_a_word_names_is_changed(word: str, what: change.Change, place: str, spec: dict[str, Any]) -> None:
    server = with_sweep()
    apply(server, word, what)
    [(patched, body)] = server.patches
    assert (patched, body["spec"]) == (place, spec)


@pytest.mark.parametrize("kept", [True, False])
def test_an_array_that_is_over_is_cancelled_where_nodes_of_it_are_kept_for_debugging(kept: bool) -> None:
    over = {"conditions": [sample.condition("Finished", "True", "Failed")]}
    server = with_sweep()
    server.objects["trainingrunsets/sweep"] = sweep(over)
    hold = {"recovery": {"debugUntil": sample.at(60)}, "leaving": {"nodes": 2, "until": sample.at(60)}} if kept else {}
    metadata = RUNS[0]["metadata"] | {"labels": {names.LABEL_SET: "sweep"}}
    server.objects["trainingruns/sweep-43"] = RUNS[0] | {"metadata": metadata, "status": over | hold}
    apply(server, "sweep")
    assert bool(server.patches) is kept


def test_of_an_ended_run_and_an_array_of_one_name_the_array_is_meant() -> None:
    server = with_sweep()
    server.objects["trainingruns/sweep"] = sample.run(
        "sweep", status={"conditions": [sample.condition("Finished", "True", "Succeeded")]}
    )
    apply(server, "sweep")
    assert server.patches == [("trainingrunsets/sweep", {"spec": {"cancel": True}})]


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({"kind": "TrainingRun", "name": "sweep"}, "there is an array sweep in namespace team, and a run needs a name"),
        ({"kind": "TrainingRun", "name": "sweep-60"}, "sweep-60 is the name of a run of the array sweep"),
        ({"kind": "TrainingRunSet", "name": "big"}, "there is a run big in namespace team, and an array needs a name"),
        ({"kind": "TrainingRun", "name": "sweep-43"}, ""),  # the API server says that there is one
        ({"kind": "TrainingRun", "name": "sweep-200"}, ""),
        ({"kind": "TrainingRun", "name": "big"}, ""),
        ({"kind": "TrainingRun", "name": "other-1"}, ""),
        ({"kind": "TrainingRunSet", "name": "sweep"}, ""),
        ({"kind": "TrainingRunSet", "name": "ended"}, ""),
        ({"kind": "TrainingRun", "name": None}, ""),
    ],
)
def test_a_run_and_an_array_do_not_get_one_name(manifest: dict[str, Any], words: str) -> None:
    server = with_sweep()
    server.objects["trainingruns/big"] = sample.run("big")
    server.objects["trainingruns/ended"] = sample.run(
        "ended", status={"conditions": [sample.condition("Finished", "True", "Succeeded")]}
    )
    body = {"apiVersion": names.API_VERSION, "kind": manifest["kind"], "metadata": {"name": manifest["name"]}}
    with pytest.raises(CliError, match=words) if words else nullcontext():
        refuse_taken(server, body)


def test_indices_that_are_cancelled_already_stay_so_whoever_writes_meanwhile(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = with_sweep(conflicts=2, cancelIndices="1,5")
    apply(server, "sweep_[3-6:2]")
    assert server.patches[0][1] == {"metadata": {"resourceVersion": "9"}, "spec": {"cancelIndices": "1,3,5"}}
    assert capsys.readouterr().out == "trainingrunset.lockstep.dev/sweep cancelled 3,5\n"


@pytest.mark.parametrize(
    ("word", "what", "said"),
    [
        ("sweep_[200]", change.CANCEL, "sweep has no index 200"),
        ("sweep-200", change.CANCEL, "sweep has no index 200"),
        ("sweep_[x]", change.CANCEL, "write indices as"),
        ("other_[1]", change.CANCEL, "there is no TrainingRunSet other"),
        ("other-1", change.CANCEL, "there is no run other-1"),
        ("sweep_[1-2]", change.SUSPEND, "can only be cancelled"),
        ("sweep-60", change.SUSPEND, "index 60 of sweep has no run, it is pending"),
        ("sweep-41", change.SUSPEND, "index 41 of sweep has no run, it is failed"),
    ],
)
def test_what_a_word_cannot_mean_is_said(word: str, what: change.Change, said: str) -> None:
    server = with_sweep()
    with pytest.raises((CliError, UsageError), match=said):
        apply(server, word, what)
    assert server.patches == []


def test_cancelled_indices_that_cannot_be_read_are_named_and_kept() -> None:
    server = with_sweep(cancelIndices="5-3")
    with pytest.raises(CliError, match=r"spec.cancelIndices of sweep cannot be read: 5-3: a range goes up"):
        apply(server, "sweep_[3]")
    assert server.patches == []


def test_a_verb_for_runs_says_that_it_met_an_array() -> None:
    with pytest.raises(CliError, match="sweep is a TrainingRunSet"):
        runs.fetch(with_sweep(), "sweep")


@pytest.mark.parametrize("word", ["sweep_7", "sweep_[3-5]", "sweep_[1-"])
def test_a_verb_for_runs_says_how_the_run_of_an_index_is_called(word: str) -> None:
    with pytest.raises(CliError, match="is no name of a run") as raised:
        runs.fetch(with_sweep(), word)
    assert "sweep-7" in (raised.value.remedy or "")


def labelled(refusals: dict[str, BaseException] | None = None, held: bool = False) -> CliServer:
    """The set and two of its runs have the label, and so has a run of no set; ``held``: its user holds one."""
    server = with_sweep(refusals=refusals)
    members = [RUNS[0], RUNS[3] | {"spec": RUNS[3]["spec"] | {"suspend": held}}]
    server.objects |= {f"trainingruns/{raw['metadata']['name']}": raw for raw in (*members, sample.pending("other"))}
    for place, raw in server.objects.items():
        server.objects[place] = raw | {"metadata": raw["metadata"] | {"labels": {"team": "nlp"}}}
    return server


def by_label(server: CliServer, what: change.Change) -> list[str]:
    change.apply(server, Chosen(selector="team=nlp"), what)
    return [place for place, _ in server.patches]


def test_a_selector_means_arrays_too_and_an_array_speaks_for_its_runs() -> None:
    assert by_label(labelled(), change.CANCEL) == ["trainingrunsets/sweep", "trainingruns/other"]
    assert by_label(labelled(), change.SUSPEND) == ["trainingrunsets/sweep", "trainingruns/other"]


def test_resuming_by_label_lets_go_of_runs_of_an_array_that_their_user_holds() -> None:
    assert by_label(labelled(held=True), change.RESUME) == ["trainingrunsets/sweep", "trainingruns/sweep-45"]


def test_a_selector_finds_runs_where_arrays_are_not_known_or_may_not_be_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    every = ["trainingruns/sweep-43", "trainingruns/sweep-45", "trainingruns/other"]
    unknown, hidden = (ApiServerError(status, "trainingrunsets is forbidden") for status in (404, 403))
    assert by_label(labelled({"list trainingrunsets": unknown}), change.CANCEL) == every
    assert capsys.readouterr().err == ""
    assert by_label(labelled({"list trainingrunsets": hidden}), change.CANCEL) == every
    assert "arrays are left out: trainingrunsets is forbidden" in capsys.readouterr().err


def test_a_selector_that_nothing_has_is_said() -> None:
    server = labelled()
    server.objects.clear()
    with pytest.raises(CliError, match="no run and no array in namespace team has the labels team=nlp"):
        by_label(server, change.CANCEL)


@pytest.mark.parametrize("word", ["nosuch", "nosuch-1"])
def test_a_name_of_nothing_is_said_to_be_that_also_to_those_who_may_not_read_arrays(word: str) -> None:
    refusal = ApiServerError(403, "trainingrunsets is forbidden", name=word)
    closed = with_sweep(refusals={"get trainingrunsets": refusal})
    with pytest.raises(CliError, match=f"there is no run {word} in namespace team"):
        apply(closed, word)
    with pytest.raises(CliError, match="forbidden"):
        apply(closed, "sweep_[3]")


def test_an_array_that_has_finished_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    server = with_sweep()
    over = AT_WORK | {"conditions": [sample.condition("Finished", "True", "SomeFailed")], "reason": "SomeFailed"}
    server.objects["trainingrunsets/sweep"] = sweep(over)
    apply(server, "sweep")
    assert server.patches == []
    assert "has finished already (SomeFailed)" in capsys.readouterr().err


def test_a_cluster_without_the_kind_has_no_arrays() -> None:
    without = CliServer(refusals={"list": ApiServerError(404, "the server could not find the requested resource")})
    assert arrays.listed(without, everywhere=False, selector="", queue="") == []


def test_a_set_is_found_by_its_queue() -> None:
    server = with_sweep()
    assert len(arrays.listed(server, everywhere=False, selector="", queue="default")) == 1
    assert arrays.listed(server, everywhere=False, selector="", queue="other") == []
