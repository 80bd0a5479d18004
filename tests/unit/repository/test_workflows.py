"""What the repository's host, editors and hooks are told to do can be done here."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep import __version__

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
MAKE = re.compile(r"\bmake ((?:[a-z0-9-]+\b ?)+)")

by_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # `on` is a word here, as on the host


HOOKS = {hook["id"]: hook for repo in read(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]}


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in read(path)["jobs"].values():
        yield from job.get("steps", [{"uses": job.get("uses")}])


def targets() -> set[str]:
    """Those of the Makefile, with what its functions make of them. It is read, and nothing is made."""
    told = ["make", "--print-data-base", "--question", "--no-builtin-rules", "--file=Makefile", "help"]
    database = subprocess.run(told, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"^([a-z0-9-]+):", database, re.MULTILINE))


@pytest.mark.process
def test_no_question_of_the_makefile_is_answered_by_make_itself() -> None:
    asked = set(re.findall(r"\$\(if \$\((\w+)\)", (ROOT / "Makefile").read_text(encoding="utf-8")))
    told = ["make", "--print-data-base", "--question", "--file=/dev/null"]
    of_make = subprocess.run(told, capture_output=True, text=True, check=False).stdout
    assert asked
    assert not asked & set(re.findall(r"^# default\n(\w+) =", of_make, re.MULTILINE))


@pytest.mark.process
@by_workflow
def test_a_workflow_makes_only_what_the_makefile_has(path: Path) -> None:
    said = [word for step in steps(path) for found in MAKE.findall(step.get("run", "")) for word in found.split()]
    assert set(said) <= targets()


@pytest.mark.process
def test_each_part_of_the_nightly_run_is_a_job_of_its_own() -> None:
    named = re.search(r"^NIGHTLY := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert named
    parts = named[1].split()
    assert read(ROOT / ".github/workflows/nightly.yml")["jobs"]["nightly"]["strategy"]["matrix"]["part"] == parts
    assert {f"nightly-{part}" for part in parts} <= targets()


OF_EVERY_RUN = ("test-unit", "test-cluster", "test-nodes", "test-others", "faults", "test-containers", "test-browser")


@pytest.mark.parametrize("target", [*OF_EVERY_RUN, "e2e"])
def test_what_continuous_integration_runs_lists_the_slowest_twenty_and_leaves_out_the_nightly(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe
    commands = re.findall(r"\.venv/bin/pytest .*", recipe[1])
    assert commands
    for command in commands:
        assert "--durations=20" in command
        has_nightly = {"tests/unit", "tests/cluster", "tests/nodes", "e2e/containers"} & set(command.split())
        assert not has_nightly or "not nightly" in command


@by_workflow
def test_a_workflow_may_only_read_but_for_jobs_that_publish(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    writing = {name for name, job in workflow["jobs"].items() if "write" in job.get("permissions", {}).values()}
    assert writing == ({"image", "release"} if path.stem == "release" else set())


@by_workflow
def test_actions_have_a_version_or_a_commit_where_jobs_publish_and_checkouts_keep_no_token(path: Path) -> None:
    version = "[0-9a-f]{40}" if path.stem == "release" else r"v\d+"
    for step in steps(path):
        used = step.get("uses", "")
        assert not used or re.fullmatch(rf"[\w./-]+@{version}|\./\.github/workflows/\w+\.yml", used)
        if used.startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] == "false"
        if used.startswith("./"):
            assert (ROOT / used).is_file()


@by_workflow
def test_every_job_ends_and_names_the_system_it_runs_on(path: Path) -> None:
    jobs = [job for job in read(path)["jobs"].values() if "uses" not in job]
    assert jobs
    for job in jobs:
        assert int(job["timeout-minutes"]) > 0
        assert not job["runs-on"].endswith("latest")


def test_files_that_workflows_name_exist() -> None:
    told = [step for path in WORKFLOWS for step in steps(path)]
    said = " ".join(f"{step.get('run')} {step.get('with')}" for step in told)
    named = set(re.findall(r"(?<![\w/])((?:\.github|charts|crds|e2e|manifests|operator|tests)/[\w./-]+\w)", said))
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_no_hook_downloads_anything() -> None:
    assert {hook["language"] for hook in HOOKS.values()} == {"system", "pygrep"}
    run = {hook["entry"].split()[0] for hook in HOOKS.values() if hook["language"] == "system"}
    assert run == {".venv/bin/ruff", "make"}


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ("core: say what changes\n", False),
        ("core/admission: say what changes\n\n" + 90 * "x", False),
        ("Say what changes\n", True),
        ("core: " + 67 * "x", True),
        ("core: " + 66 * "x", False),
        ("Merge branch 'other'\n", False),
    ],
)
def test_the_hook_refuses_subjects_without_an_area_and_long_ones(message: str, refused: bool) -> None:
    assert bool(re.search(HOOKS["subject"]["entry"], message, re.MULTILINE | re.DOTALL)) is refused


@pytest.mark.process
@pytest.mark.parametrize("subject", ["core: say what changes", "core: " + 67 * "x"])
def test_a_pull_request_is_held_to_the_hooks_words_of_subjects(tmp_path: Path, subject: str) -> None:
    job = read(ROOT / ".github/workflows/check.yml")["jobs"]["subjects"]
    assert job["if"] == "github.event_name == 'pull_request'"
    assert job["steps"][0]["with"]["fetch-depth"] == "0"
    assert job["steps"][-1]["run"].startswith("make subjects SINCE=")
    for name in (".pre-commit-config.yaml", "Makefile"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (tmp_path / ".venv" / name).symlink_to(ROOT / ".venv" / name)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (
        ["git", "init", "--quiet", "--template="],
        ["git", "add", ".pre-commit-config.yaml", "Makefile"],
        [*git, "commit", "--quiet", "--message=core: begin"],
        [*git, "commit", "--quiet", "--allow-empty", f"--message={subject}"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True)
    told = ["make", "--silent", "--old-file=.venv/.ready", "subjects", "SINCE=HEAD~1"]
    found = subprocess.run(
        told,
        cwd=tmp_path,
        env={**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode == 0) is (len(subject) <= 72), found.stdout + found.stderr
    assert (subject in found.stdout) is (len(subject) > 72)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_form_asks_for_something(path: Path) -> None:
    form = read(path)
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) > 1
    assert any(field.get("validations", {}).get("required") == "true" for field in fields)


def test_the_rest_can_be_read() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    assert container["postCreateCommand"] == "make setup"
    assert len(read(ROOT / ".github" / "kind.yaml")["nodes"]) == 5
    assert read(ROOT / "OWNERS").keys() == {"approvers", "reviewers"}


@pytest.mark.process
def test_whatever_is_locked_is_kept_up_to_date() -> None:
    looked_after: dict[str, set[Path]] = {}
    for update in read(ROOT / ".github" / "dependabot.yml")["updates"]:
        for folder in update.get("directories", [update.get("directory")]):
            found = {path.parent for path in ROOT.glob(f"{folder}/*".lstrip("/"))}
            assert found, folder
            looked_after.setdefault(update["package-ecosystem"], set()).update(found)
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for ecosystem, lock in (("uv", "uv.lock"), ("gomod", "go.mod")):
        locked = {(ROOT / name).parent for name in tracked if Path(name).name == lock}
        assert looked_after.get(ecosystem) == locked


@pytest.mark.process
def test_what_a_release_publishes_names_the_image_that_it_publishes(tmp_path: Path) -> None:
    release = ROOT / ".github" / "workflows" / "release.yml"
    (named,) = [step["run"] for step in steps(release) if step.get("name") == "the image, wherever it is named"]
    for name in ("charts/lockstep/values.yaml", "manifests/install.yaml"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    environment = {"PATH": os.environ["PATH"], "OWNER": "somebody", "VERSION": __version__}
    subprocess.run(["bash", "-e", "-c", named], cwd=tmp_path, env=environment, check=True)
    image = "ghcr.io/somebody/lockstep-operator"
    assert read(tmp_path / "charts/lockstep/values.yaml")["image"]["repository"] == image
    install = (tmp_path / "manifests/install.yaml").read_text(encoding="utf-8")
    assert {value.strip('"') for value in re.findall(r"^ *image: (.*)$", install, re.MULTILINE)} == {
        f"{image}:{__version__}"
    }
