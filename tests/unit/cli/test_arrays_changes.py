"""Arrays, their indices and runs as they are cancelled, suspended, resumed: what a word or label means."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.cli import runs
from lockstep.cli.actions import change, hold
from lockstep.cli.errors import ApiServerError, CliError, UsageError
from lockstep.cli.options import Chosen
from support import sample_runs as sample
from support.cli_server import CliServer
from support.sweeps import AT_WORK, RUNS, sweep, with_run, with_sweep


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
