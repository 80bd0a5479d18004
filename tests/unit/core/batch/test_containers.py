"""Images and mounts that steps of a script name, before it runs."""

import pytest

from lockstep.core.batch.containers import images_of_steps, mounts_of_steps
from lockstep.slurm.handling import IGNORED, REFUSED


def steps(option: str, *values: str) -> str:
    """A script with a step for each."""
    return "#!/bin/sh\n" + "".join(f"srun --{option}={value} x\n" for value in values)


@pytest.mark.parametrize(
    ("said", "images", "refused"),
    [
        (False, ["a", "b"], ["b"]),
        (False, ["a", "/b.sqsh"], ["/b.sqsh"]),
        (True, ["b", "a", "c"], ["b", "c"]),
        (True, ["/a.sqsh", "/b.sqsh"], ["/a.sqsh", "/b.sqsh"]),
        (True, ["docker.io#library/a:latest", "a"], []),
    ],
)
def test_a_step_with_another_image_than_the_jobs_is_refused_by_its_name(
    said: bool, images: list[str], refused: list[str]
) -> None:
    rows = list(images_of_steps(steps("container-image", *images), "a", said=said))
    assert [(row.option, row.value, row.handling) for row in rows] == [
        ("srun --container-image", name, REFUSED) for name in refused
    ]
    assert all("the job runs in a," in row.words for row in rows)


@pytest.mark.parametrize(
    ("written", "words"),
    [("/a.sqsh", "is a file; its steps run in the job's image a"), ("$1", "known only once the script runs")],
)
def test_an_image_that_may_be_the_jobs_is_told_of(written: str, words: str) -> None:
    [row] = images_of_steps(steps("container-image", written), "a", said=True)
    assert (row.value, row.handling, words in row.words) == (written, IGNORED, True)


def test_of_paths_that_no_volume_has_a_step_names_a_few() -> None:
    named = ",".join(f"/{number}" for number in range(1000))
    [row] = mounts_of_steps(steps("container-mounts", named), ["/home"], "there are /home")
    assert row.words == "/0, /1, /2, /3, /4, /5, /6, /7 and 992 more are on no volume; there are /home"
    [row] = mounts_of_steps(steps("container-mounts", "/a,/a"), ["/home"], "there are /home")
    assert row.words == "/a is on no volume; there are /home"


@pytest.mark.parametrize(
    ("mounts", "handling"),
    [
        ("/home", []),
        ("/fsx:/home/x", []),  # the volume is another one than the script's machines had
        ("/home:/home,/fsx:/fsx", [REFUSED]),
        ("$PWD:/home", []),
        ("$PWD:/workspace", [REFUSED]),
        ("$MOUNTS", [IGNORED]),
        ("$MOUNTS,/fsx", [REFUSED, IGNORED]),
    ],
)
def test_a_mount_of_a_step_is_held_to_the_volumes_as_the_jobs_is(mounts: str, handling: list[str]) -> None:
    rows = list(mounts_of_steps(steps("container-mounts", mounts), ["/home"], "there are /home"))
    assert [(row.option, row.value, row.handling) for row in rows] == [
        ("srun --container-mounts", mounts, each) for each in handling
    ]
