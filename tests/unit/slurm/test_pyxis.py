"""Images as pyxis names them."""

import pytest

from lockstep.slurm.submission.pyxis import hoisted, image


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("nvcr.io#nvidia/pytorch:24.01-py3", "nvcr.io/nvidia/pytorch:24.01-py3"),
        ("docker://nvcr.io#nvidia/pytorch:24.01-py3", "nvcr.io/nvidia/pytorch:24.01-py3"),
        ("docker://$oauthtoken@nvcr.io#nvidia/pytorch", "nvcr.io/nvidia/pytorch"),
        ("nvcr.io/nvidia/pytorch:24.01-py3", "nvcr.io/nvidia/pytorch:24.01-py3"),
        ("ubuntu", "ubuntu"),
        ("docker://ubuntu:22.04", "ubuntu:22.04"),
        ("r.example:5000#team/x@sha256:" + "a" * 64, "r.example:5000/team/x@sha256:" + "a" * 64),
    ],
)
def test_a_name_of_pyxis_is_a_reference(text: str, reference: str) -> None:
    assert image(text) == reference


@pytest.mark.parametrize("text", ["/images/x.sqsh", "x.sqsh", "./x", "dockerd://x", "a b", ""])
def test_what_no_registry_has_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        image(text)


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
