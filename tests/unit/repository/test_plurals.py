"""Counts in texts for people: one is said as one, ``1 node``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from support.sources import PACKAGE, trees

COUNTED = (
    "attempts", "checkpoints", "claims", "components", "containers", "copies", "days", "domains", "entries", "events",
    "failures", "files", "GPUs", "hours", "incarnations", "indices", "jobs", "levels", "lines", "minutes", "nodes",
    "numbers", "pods", "processes", "queues", "ranks", "replicas", "restarts", "retries", "runs", "saves", "seconds",
    "shards", "slots", "spares", "steps", "tasks", "times", "values", "volumes", "weeks", "windows", "workers",
)  # fmt: skip
BETWEEN = "earlier|failed|finished|further|later|more|other|others|pending|whole"
FOLLOWED = re.compile(rf"^ (?:(?:{BETWEEN}) )?(?:{'|'.join(COUNTED)})\b(?![/=])")
SLURM_S = "Slurm's own words"
OURS = "told of a defect of ours alone"
SEVERAL = "said of several alone"
NO_COUNT = "no count stands there"
EXCEPTIONS = {
    "cli/submission/packing.py: {room.files} files": SEVERAL,
    "cli/views/logs.py: {world} ranks": SEVERAL,
    "core/admission/cache/pending_reasons.py: {kind} nodes": NO_COUNT,
    "core/admission/engine/bookings.py: {option.count} nodes": OURS,
    "core/batch/components.py: {total} nodes": SEVERAL,
    "core/batch/submission.py: {len(nodes)} nodes": SEVERAL,
    "core/batch/submission.py: {request.most_nodes} nodes": SEVERAL,
    "core/checkpoints/verdicts.py: {max(held) + 1} nodes": SEVERAL,
    "core/failures/actions.py: {case.alike_before + 1} times": SEVERAL,
    "core/failures/actions.py: {count} times": SEVERAL,
    "core/failures/node_memory.py: {len(last)} runs": SEVERAL,
    "core/failures/ranks.py: {len(done)} ranks": SEVERAL,
    "core/failures/step_evidence.py: {deciding} ranks": SEVERAL,
    "core/failures/stragglers.py: {known.windows} minutes": SEVERAL,
    "core/placement/node_pool.py: {' or '.join(self.placement.gpu_types)} GPUs": NO_COUNT,
    "core/run/elastic.py: {before} ranks": SEVERAL,
    "core/run/elastic.py: {plan.spec.nodes} nodes": SEVERAL,
    "core/run/plain/report.py: {plan.status.attempt} runs": NO_COUNT,
    "core/run/regression.py: {len(newest)} slots": SEVERAL,
    "present/explanation.py: {verb} nodes": NO_COUNT,
    "slurm/environment.py: {len(job.components)} components": OURS,
    "slurm/environment.py: {len(job.nodes)} nodes": OURS,
    "slurm/gpus.py: {nodes} nodes": SEVERAL,
    "slurm/reports.py: {seconds} seconds": SLURM_S,
    "slurm/srun.py: {job_nodes} nodes": SLURM_S,
    "slurm/srun.py: {least} nodes": SLURM_S,
    "slurm/srun.py: {len(chosen)} nodes": SLURM_S,
    "slurm/srun.py: {total} processes": SLURM_S,
    "slurm/submission/batch.py: {most} tasks": SEVERAL,
    "slurm/submission/batch.py: {request.nodes} nodes": SEVERAL,
    "slurm/submission/batch.py: {total} processes": SLURM_S,
    "worker/launchers/slurm.py: {len(job.nodes)} nodes": OURS,
    "worker/shims/srun.py: {max(found.counts)} tasks": SEVERAL,
    "worker/steps/credentials.py: {len(order)} ranks": OURS,
    "worker/steps/credentials.py: {ranks} ranks": OURS,
}
"""With why: what is never one, or not ours to say."""


def counts_said(tree: ast.AST) -> Iterator[str]:
    """``{value} nodes`` of each f-string in which a count that may be one is followed by more than one."""

    def look(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.IfExp) and _tells_one_apart(node.test):
            return
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                    continue
                if (found := FOLLOWED.match(str(text.value))) and not _is_no_count(value.value):
                    yield f"{{{ast.unparse(value.value)}}}{found[0]}"
        for child in ast.iter_child_nodes(node):
            yield from look(child)

    yield from look(tree)


def _tells_one_apart(test: ast.expr) -> bool:
    """``count == 1`` and its like."""
    compared = (each for each in ast.walk(test) if isinstance(each, ast.Compare))
    return any(isinstance(side, ast.Constant) and side.value == 1 for each in compared for side in each.comparators)


def _is_no_count(value: ast.expr) -> bool:
    """A constant, which whoever wrote the text knew, or a name."""
    last = [each.attr for each in ast.walk(value) if isinstance(each, ast.Attribute)]
    names = [each.id for each in ast.walk(value) if isinstance(each, ast.Name)]
    of_module = last or names
    return bool(of_module) and (all(each.isupper() for each in of_module) or of_module == ["name"])


def test_a_count_of_one_is_said_as_one() -> None:
    found = {f"{path.relative_to(PACKAGE)}: {said}" for path, tree in trees().items() for said in counts_said(tree)}
    assert sorted(found - EXCEPTIONS.keys()) == [], "say it by plural(), or list it with why it is never one"
    assert sorted(EXCEPTIONS.keys() - found) == [], "nobody says that any more"


def test_such_counts_are_found_wherever_they_stand() -> None:
    assert counts_in('f"{count} nodes"') == ["{count} nodes"]
    assert counts_in('say(f"of {len(ranks)} other ranks: {why}" if why else "")') == ["{len(ranks)} other ranks"]
    for text in ("f\"{plural(count, 'node')}\"", 'f"{MOST} nodes"', 'f"{run.name} runs"', 'f"{pace} steps/s"'):
        assert counts_in(text) == []
    assert counts_in('"a node" if count == 1 else f"{count} nodes"') == []


def counts_in(source: str) -> list[str]:
    return list(counts_said(ast.parse(source)))
