"""What the steps of a script say to pyxis."""

import pytest

from lockstep.slurm.submission.pyxis import IMAGE, MOUNTS, hoisted, step_options


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("srun --container-image=r.io#a/b:1 python x", "r.io/a/b:1"),
        ("srun --container-image r.io#a/b:1 python x", "r.io/a/b:1"),
        ('IMAGE=r.io#a/b:1\nsrun -l \\\n  --container-image="$IMAGE" x', "r.io/a/b:1"),
        ('TAG=1\nexport IMAGE="r.io#a/b:${TAG}"\nsrun --container-image=${IMAGE} x', "r.io/a/b:1"),
        ("IMAGE=${IMAGE:-r.io#a/b:1}\nsrun --container-image=$IMAGE x", "r.io/a/b:1"),
        ("srun --container-image=${IMAGE:-ubuntu} x", "ubuntu"),
        ('ARGS="--container-image=ubuntu --container-mounts=/data"\nsrun $ARGS x', "ubuntu"),
        ("srun --container-image=a x\nsrun --container-image=b y", "a"),
        ("# srun --container-image=a x\nsrun x", None),
        ("srun x", None),
    ],
)
def test_the_first_step_with_an_image_says_which_is_the_jobs(script: str, expected: str | None) -> None:
    assert hoisted(f"#!/bin/bash\n{script}\n") == expected


@pytest.mark.parametrize("word", ["$1", "$IMAGE", "`cat image`", "$(cat image)"])
def test_an_image_that_only_the_running_script_knows_is_refused_with_the_remedy(word: str) -> None:
    with pytest.raises(ValueError, match="#SBATCH --container-image"):
        hoisted(f"srun --container-image={word} x")


def test_variables_of_variables_do_not_grow_without_end() -> None:
    lines = [f"V{index}={f'$V{index + 1}' * 100}" for index in range(9)]
    with pytest.raises(ValueError, match="known only once"):
        hoisted("\n".join([*lines, "srun --container-image=$V0 x"]))


@pytest.mark.parametrize(
    ("script", "option", "filled"),
    [
        ("srun --container-image=a x\nsrun --container-image=b y\nsrun --container-image=a z", IMAGE, ["a", "b"]),
        ("srun --container-mounts=/a:/b,/c x", MOUNTS, ["/a:/b,/c"]),
        ('M=/a:/a\nsrun --container-mounts="$M,$PWD":/w x', MOUNTS, ["/a:/a,$PWD:/w"]),
        ('srun --container-mounts "$(pwd)":/w,/c x', MOUNTS, ["$(pwd):/w,/c"]),
        ('A="--container-mounts=/a" B="--container-image=i"\nsrun $A $B x', MOUNTS, ["/a"]),
        ("A=(\n  --container-mounts=/a\n)\nsrun ${A[@]} x", MOUNTS, ["/a"]),
        (f"M=/{'a' * 2000}:/b\nsrun --container-mounts=$M x", MOUNTS, [f"/{'a' * 2000}:/b"]),
        (f"M=/{'a' * 5000}:/b\nsrun --container-mounts=$M x", MOUNTS, ["$M"]),  # and nothing that is cut off
        ("echo use --container-image=IMAGE\n  sbatch --container-image=c next.sh", IMAGE, []),
    ],
)
def test_each_value_of_an_option_of_steps_is_found(script: str, option: str, filled: list[str]) -> None:
    assert [one.filled for one in step_options(script, option)] == filled
