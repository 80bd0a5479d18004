"""`lockstep sbatch` answers as sbatch does, and names what it cannot do before anything is created."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.cli import client, runs
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.main import main
from lockstep.cli.options import Chosen
from lockstep.cli.submission import job_numbers
from support import sample_runs as sample
from support.cli_server import CliServer

HOME = {"name": "home", "mountPath": "/", "persistentVolumeClaim": {"claimName": "home"}}
HOME_CLAIM = "persistentvolumeclaims/home"
BATCH = {"image": "i", "volumes": [{**HOME, "mountPath": "/tmp"}]}
SCRIPT = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --job-name=llama\nsrun python train.py\n"


def serving(*statuses: dict[str, Any], queues: dict[str, Any] | None = None, **more: Any) -> CliServer:
    """Has queues and the claim; what is created has the statuses."""
    found = {"default": {"spec": {"batch": BATCH}}} if queues is None else queues
    there = {f"{names.QUEUES}/{name}": each for name, each in found.items()}
    return CliServer(there | {HOME_CLAIM: {}}, statuses=statuses or [{"jobId": 7}], **more)


Types = Callable[..., tuple[int, str, str]]


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Types:
    """(exit code, stdout, stderr) of `lockstep sbatch WORDS`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    (tmp_path / "t.sh").write_text(SCRIPT)

    def typed(server: CliServer | None, *words: str, stdin: str = "") -> tuple[int, str, str]:
        def connect(*_: Any) -> Any:
            if server is None:
                raise CliError("no usable kubeconfig", "pass --kubeconfig and --context")
            return server

        monkeypatch.setattr(client, "connect", connect)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as end:
            main(["sbatch", *words])
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return typed


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = job_numbers.await_number.__defaults__
    assert defaults is not None
    monkeypatch.setattr(job_numbers.await_number, "__defaults__", (3.0, lambda seconds: None))
    monkeypatch.setattr(job_numbers.await_end, "__defaults__", (lambda seconds: None,))


def test_a_script_is_submitted_as_it_is_and_answered_with_its_number(types: Types, tmp_path: Path) -> None:
    server = serving({}, {}, {"jobId": 4711})
    assert types(server, "--gpus-per-node=8", "t.sh", "--lr", "-3") == (0, "Submitted batch job 4711\n", "")
    [made] = server.created
    assert made["metadata"]["generateName"] == "llama-"
    assert made["metadata"]["annotations"] == {names.ANNOTATION_USER: "ada@example.net"}
    spec = made["spec"]
    batch = spec["launcher"]["batch"]
    assert (spec["nodes"], spec["gpusPerNode"], spec["image"]) == (2, 8, "i")
    assert (batch["script"], batch["arguments"], batch["directory"]) == (SCRIPT, ["--lr", "-3"], str(tmp_path))
    assert batch["command"] == f"{tmp_path}/t.sh"
    assert batch["options"] == {"nodes": "2", "job-name": "llama", "gpus-per-node": "8"}
    assert batch["user"]
    assert batch["host"]


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["t.sh"], "Submitted batch job 7\n"),
        (["--parsable", "t.sh"], "7\n"),
        (["-Q", "t.sh"], ""),
        (["-Q", "--parsable", "t.sh"], "7\n"),
        (["--wrap=hostname"], "Submitted batch job 7\n"),
        (["--wrap", "hostname", "-N", "2"], "Submitted batch job 7\n"),
    ],
)
def test_it_says_what_clients_of_sbatch_read(types: Types, words: list[str], out: str) -> None:
    assert types(serving(), *words) == (0, out, "")


def test_a_script_may_come_by_standard_input(types: Types) -> None:
    server = serving()
    assert types(server, stdin=SCRIPT)[:2] == (0, "Submitted batch job 7\n")
    batch = server.created[0]["spec"]["launcher"]["batch"]
    assert (batch["name"], "command" in batch) == ("sbatch", False)


def test_a_wrapped_command_is_a_script_of_sh(types: Types) -> None:
    server = serving()
    types(server, "--wrap=echo $HOME", "-J", "x")
    batch = server.created[0]["spec"]["launcher"]["batch"]
    assert batch["script"].startswith("#!/bin/sh\n")
    assert "echo $HOME" in batch["script"]
    assert "command" not in batch


def test_a_script_is_found_in_path_too(types: Types, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "t.sh").rename(tmp_path / "bin" / "t.sh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    server = serving()
    assert types(server, "t.sh")[0] == 0
    assert server.created[0]["spec"]["launcher"]["batch"]["command"] == f"{tmp_path}/bin/t.sh"


def test_options_come_from_the_environment_before_those_that_are_typed(
    types: Types, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_TIMELIMIT", "60")
    monkeypatch.setenv("SBATCH_QOS", "low")
    server = serving()
    assert types(server, "-q", "high", "t.sh")[0] == 0
    assert (server.created[0]["spec"]["timeLimit"], server.created[0]["spec"]["priorityClassName"]) == ("1h", "high")


def test_an_array_becomes_a_set_with_its_width(types: Types) -> None:
    server = serving()
    assert types(server, "-a", "0-15:5%2", "-A", "llm", "t.sh") == (0, "Submitted batch job 7\n", "")
    [made] = server.created
    assert (made["kind"], made["spec"]["indices"], made["spec"]["maxRunning"]) == ("TrainingRunSet", "0-15:5", 2)
    assert made["spec"]["template"]["spec"]["launcher"]["type"] == "Slurm"
    assert made["spec"]["template"]["metadata"]["labels"] == {"slurm/account": "llm"}


def test_dependencies_name_jobs_by_their_numbers(types: Types) -> None:
    lists = {
        "trainingruns": [{"metadata": {"name": "first"}, "status": {"jobId": 5}}, {"metadata": {"name": "old"}}],
        "trainingrunsets": [{"metadata": {"name": "sweep"}, "status": {"jobId": 6}}],
    }
    server = serving(lists=lists)
    assert types(server, "-d", "afterok:5,afterany:6_2", "t.sh")[0] == 0
    assert server.created[0]["spec"]["dependsOn"] == [
        {"name": "first", "condition": "Succeeded"},
        {"name": "sweep-2", "condition": "Finished"},
    ]
    code, out, err = types(server, "-d", "afterok:9", "t.sh")
    assert (code, out) == (1, "")
    assert "sbatch: error: --dependency afterok:9: there is no job 9 in namespace team" in err


@pytest.mark.parametrize(("words", "said"), [(["--kill-on-invalid-dep=yes"], "Cancel"), ([], None)])
def test_an_array_whose_dependency_can_never_be_met_goes_as_it_is_asked_to(
    types: Types, words: list[str], said: str | None
) -> None:
    jobs = [{"metadata": {"name": "sweep"}, "status": {"jobId": 6}}]
    server = serving(lists={"trainingruns": [], "trainingrunsets": jobs})
    assert types(server, "-a", "0-9", "-d", "aftercorr:6", *words, "t.sh")[0] == 0
    spec = server.created[0]["spec"]
    assert (spec["afterCorr"], spec.get("onUnsatisfiable")) == ("sweep", said)


ERRORS: dict[str, tuple[list[str], str, str]] = {
    "no file": (["no.sh"], "", "sbatch: error: Unable to open file no.sh: No such file or directory"),
    "no script": (["-N1"], "", "sbatch: error: Batch script is empty!"),
    "no interpreter": ([], "srun x", "sbatch: error: This does not look like a batch script."),
    "DOS": ([], "#!/bin/sh\r\nx\r\n", "sbatch: error: Batch script contains DOS line breaks"),
    "an option that is none": (["--foo", "t.sh"], "", "sbatch: unrecognized option '--foo'"),
    "one in the script": ([], "#!/bin/sh\n#SBATCH --foo\n", "sbatch: unrecognized option '--foo'"),
    "a word in a directive": ([], "#!/bin/sh\n#SBATCH foo\n", "Invalid directive found in batch script: foo"),
    "an open quote": ([], "#!/bin/sh\n#SBATCH -J 'x\n", "sbatch: error: sbatch: line 2: Unmatched"),
    "arguments of nothing": (["--wrap=x", "t.sh"], "", "sbatch: error: Script arguments not permitted with --wrap"),
    "a licence": (["-L", "matlab", "t.sh"], "", "sbatch: error: --licenses matlab: licences are not counted here"),
    "another cluster": (["-M", "other", "t.sh"], "", "sbatch: error: --clusters other: there is one cluster here"),
    "an array that is none": (["-a", "x", "t.sh"], "", "sbatch: error: --array"),
    "a partition that is not there": (["-p", "gone", "t.sh"], "", "sbatch: error: invalid partition specified: gone"),
    "bad fields": (["-w", "n[1-2]", "-x", "n1", "t.sh"], "", "sbatch: error:   spec.placement.nodes"),
}


@pytest.mark.parametrize(("words", "stdin", "said"), ERRORS.values(), ids=ERRORS)
def test_what_cannot_be_is_said_as_sbatch_says_it_and_nothing_is_created(
    types: Types, words: list[str], stdin: str, said: str
) -> None:
    server = serving()
    code, out, err = types(server, *words, stdin=stdin)
    assert (code, out, server.created) == (1, "", [])
    assert said in err
    assert all(line.startswith(("sbatch: ", 'Try "sbatch')) for line in err.splitlines())


def test_of_several_partitions_the_first_that_there_is_takes_it(types: Types) -> None:
    server = serving(queues={"b": {"spec": {"batch": {**BATCH, "image": "of-b"}}}})
    assert types(server, "-p", "a,b", "t.sh")[0] == 0
    assert (server.created[0]["spec"]["queue"], server.created[0]["spec"]["image"]) == ("b", "of-b")


def test_who_may_not_read_queues_names_the_image_by_hand(types: Types) -> None:
    server = serving(queues={"q": ApiServerError(403, "forbidden", name="q")})
    code, _, err = types(server, "-p", "q", "t.sh")
    assert code == 1
    assert "no image is named" in err
    assert types(server, "-p", "q", "--container-image=i", "t.sh")[0] == 0


def test_a_queue_that_nobody_has_created_needs_no_object(types: Types) -> None:
    assert types(serving(queues={}), "--container-image=i", "t.sh")[:2] == (0, "Submitted batch job 7\n")


def test_what_has_no_effect_here_is_named_unless_it_is_to_be_quiet(types: Types) -> None:
    _, out, err = types(serving(), "--cpu-freq=high", "t.sh")
    assert (out, err) == ("Submitted batch job 7\n", "sbatch: --cpu-freq high: clock rates are the cluster's\n")
    assert types(serving(), "-Q", "--cpu-freq=high", "t.sh")[1:] == ("", "")


def test_it_is_told_when_its_script_gets_the_signal_before_its_limit_unless_it_is_to_be_quiet(types: Types) -> None:
    own, queues = ["-t", "30", "--signal=USR1@120", "t.sh"], ["--signal=USR1@120", "t.sh"]
    told = "time: 30m with its nodes; after 28m all ranks are asked to save, "
    assert types(serving(), *own)[2].startswith(f"sbatch: Its {told}")
    assert types(serving(), "-a", "0-3", *own)[2].startswith(f"sbatch: The {told.replace(': ', ' of each run: ', 1)}")
    server = serving(queues={"default": {"spec": {"batch": BATCH, "limits": {"defaultTimeLimit": "30m"}}}})
    assert types(server, *queues)[2].startswith(f"sbatch: Its {told}")
    assert types(server, "-Q", *queues)[1:] == ("", "")


def test_directives_behind_the_first_command_are_named(types: Types) -> None:
    _, _, err = types(serving(), stdin="#!/bin/sh\nx\n#SBATCH -N 4\n")
    assert "#SBATCH line 3: stands behind the first command" in err


def test_a_path_that_no_volume_has_is_named_before_the_start(types: Types, tmp_path: Path) -> None:
    _, out, err = types(serving(queues={"default": {"spec": {"batch": {"image": "i"}}}}), "t.sh")
    assert out == "Submitted batch job 7\n"
    assert f"sbatch: path {tmp_path}: is on no volume" in err


def test_a_job_that_the_operator_refuses_is_not_left_behind(types: Types) -> None:
    refused = sample.condition("Accepted", "False", "PodRefused", "no such account")
    server = serving({}, {"conditions": [refused]})
    code, out, err = types(server, "t.sh")
    assert (code, out) == (1, "")
    assert "sbatch: error: Batch job submission failed: no such account" in err
    assert len(server.deleted) == 1


def test_a_job_that_a_full_quota_refuses_has_its_number_and_waits(types: Types) -> None:
    full = sample.condition("Accepted", "False", "PodRefused", "exceeded quota: gpus")
    for words, said in (([], "sbatch: it waits: exceeded quota: gpus\n"), (["-Q"], "")):
        server = serving({}, {"conditions": [full], "jobId": 7})
        code, out, err = types(server, *words, "t.sh")
        assert (code, out, err, server.deleted) == (0, "" if words else "Submitted batch job 7\n", said, [])


def test_a_job_that_nobody_numbers_is_named_and_stays(types: Types) -> None:
    server = serving({})
    code, out, err = types(server, "t.sh")
    assert (code, out, server.deleted) == (124, "", [])
    assert "llama-00000 is submitted, and has no number after 3 s" in err
    assert "lockstep info llama-00000" in err


FINISHED = sample.condition("Finished", "True", "x")


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ({"conditions": [FINISHED, sample.condition("Succeeded", "True", "x")]}, 0),
        ({"conditions": [FINISHED], "attempts": [{"number": 1, "exitCode": 7, "scriptExitCode": 3}]}, 3),
        ({"conditions": [FINISHED], "attempts": [{"number": 1, "exitCode": 137, "scriptExitCode": 137}]}, 137),
        ({"conditions": [FINISHED], "attempts": [{"number": 1, "exitCode": 7, "scriptExitCode": 0}]}, 1),
        ({"conditions": [FINISHED], "attempts": [{"number": 1, "exitCode": 7}]}, 1),
        ({"conditions": [FINISHED]}, 1),
    ],
)
def test_waiting_ends_with_the_scripts_code(types: Types, end: dict[str, Any], code: int) -> None:
    assert types(serving({"jobId": 7}, {"jobId": 7}, {"jobId": 7, **end}), "-W", "t.sh") == (
        code,
        "Submitted batch job 7\n",
        "",
    )


def test_what_becomes_of_each_option_is_explained_without_a_cluster(types: Types) -> None:
    server = serving()
    code, out, err = types(server, "--explain", "--cpu-freq=high", "-L", "x", "t.sh")
    assert (code, err, server.created) == (1, "", [])
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert "ignored" in rows["--cpu-freq"]
    assert "refused" in rows["--licenses"]
    assert "nodes, elastic.min" in rows["--nodes"]
    assert types(None, "--explain", "--container-image=i", "t.sh")[0] == 0


def test_the_manifest_can_be_seen_without_a_cluster(types: Types) -> None:
    code, out, _ = types(None, "--dry-run", "--container-image=i", "t.sh")
    assert code == 0
    assert "type: Slurm" in out


def test_who_asks_loudly_gets_the_table_beside_the_answer(types: Types) -> None:
    _, out, err = types(serving(), "-v", "t.sh")
    assert out == "Submitted batch job 7\n"
    assert "sbatch: --job-name" in err


@pytest.mark.parametrize(
    ("word", "said"), [("--version", "slurm 2"), ("-V", "slurm 2"), ("--help", "Usage: "), ("-h", "--explain")]
)
def test_version_and_help_need_nothing(types: Types, word: str, said: str) -> None:
    code, out, err = types(None, word)
    assert (code, err) == (0, "")
    assert said in out


def test_what_is_called_otherwise_here_is_named_so(types: Types) -> None:
    code, _, err = types(None, "--wrap=x")
    assert code == 1
    assert "sbatch: error: pass --kubeconfig and --kube-context" in err


def test_a_dry_run_of_admission_says_when_it_would_start(types: Types) -> None:
    answer = {"at": sample.at(0), "observedGeneration": 1, "priority": 12, "start": sample.at(0), "nodes": ["gpu-1"]}
    server = serving({"conditions": [sample.ACCEPTED], "testOnly": answer})
    code, out, err = types(server, "--test-only", "t.sh")
    assert (code, out, len(server.deleted)) == (0, "", 1)
    assert "sbatch: the job would start now on gpu-1" in err


def test_what_is_created_is_plain_json(types: Types) -> None:
    server = serving()
    types(server, "-N", "2-4", "--signal=B:USR1@60", "--export=A=1", "t.sh")
    assert json.loads(json.dumps(server.created[0])) == server.created[0]


def jobs() -> CliServer:
    """Has an array and runs, one of which is called as if it were a number."""
    numbers = {"first": 5, "sweep-3": 7, "8": 9, "other": 8}
    there = {f"trainingruns/{name}": sample.run(name, status={"jobId": job}) for name, job in numbers.items()}
    sweep = {"metadata": {"name": "sweep"}, "status": {"jobId": 6}}
    return CliServer(there, lists={"trainingrunsets": [sweep]})


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("5", "first"),
        ("7", "sweep-3"),
        ("6", "sweep"),
        ("6_3", "sweep-3"),
        ("6_[3-5]", "sweep_[3-5]"),
        ("5_3", "5_3"),
        ("9", "8"),
        ("8", "8"),
        ("4711", "4711"),
        ("first", "first"),
        ("123456789", "123456789"),
    ],
)
def test_verbs_take_a_jobs_number_for_its_name(typed: str, name: str) -> None:
    assert runs.by_number(jobs(), typed) == name
    [chosen] = runs.named(jobs(), Chosen([typed]))
    assert chosen == name


def test_a_run_is_found_by_its_number() -> None:
    assert runs.fetch(jobs(), "5")["metadata"]["name"] == "first"
    with pytest.raises(CliError, match="there is no run 4711"):
        runs.fetch(jobs(), "4711")


def test_a_job_that_names_what_is_not_there_is_not_submitted(types: Types) -> None:
    server = serving()
    del server.objects[HOME_CLAIM]
    code, out, err = types(server, "t.sh")
    assert (code, out, server.created) == (1, "", [])
    assert (
        "sbatch: error:   spec.volumes[0].persistentVolumeClaim.claimName: there is no PersistentVolumeClaim home"
        in err
    )
