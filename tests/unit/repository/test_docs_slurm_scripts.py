"""docs/slurm-scripts.md says of each option of sbatch what the program does with it."""

import re
from pathlib import Path

import yaml

from lockstep.api.queue import TrainingQueueSpec
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.pods.validation import validate
from lockstep.slurm.submission.batch import batches
from lockstep.slurm.submission.directives import directives
from lockstep.slurm.submission.options import HANDLING
from support.batch_scripts import DIFFERENCES

PAGE = (Path(__file__).parents[3] / "docs" / "slurm-scripts.md").read_text(encoding="utf-8")


def test_every_option_stands_in_the_table_with_what_becomes_of_it() -> None:
    table = PAGE.partition("## Options\n")[2].partition("\n## ")[0]
    told = {
        name: (handling, words)
        for options, handling, words in re.findall(r"^\| (`--.*?) \| ([a-z ]+) \| (.*?) ?\|$", table, re.MULTILINE)
        for name in re.findall(r"`--([a-z0-9-]+)`", options)
    }
    assert told == dict(HANDLING)


def test_the_manifests_that_are_shown_are_taken() -> None:
    shown = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    kinds = {document["kind"]: document["spec"] for document in shown}
    assert validate(TrainingRunSpec.model_validate(kinds["TrainingRun"]), {}) == []
    assert TrainingQueueSpec.model_validate(kinds["TrainingQueue"]).batch is not None


def test_the_script_that_is_shown_is_read_without_a_refusal() -> None:
    [script] = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    [made] = batches(directives("train.sbatch", script), {}, ["train.sbatch"])
    assert not made.refusals
    assert not made.notices
    assert (made.request.nodes, made.request.gpus_per_node) == (4, 8)


def test_what_a_real_slurm_does_otherwise_is_told() -> None:
    rows = PAGE.partition("## What differs from Slurm\n")[2].splitlines()
    assert [each.row for each in DIFFERENCES if each.row not in rows] == []
