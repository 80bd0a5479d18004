"""What the steps of a script say to pyxis."""

import time

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


@pytest.mark.parametrize(
    "head",
    [
        "I=a:1\nI=b:2",
        "I=a:1; I=b:2",
        "I=a:1\nif true; then I=b:2; fi",
        "I=a:1\n[ $1 ] && I=b:2",
        "I=${I:-a:1}\nI=b:2",
        "I=a:1\nI=b:2\nI=a:1",
    ],
)
@pytest.mark.parametrize("word", ["$I", "${I:-c}"])
def test_an_image_that_a_script_chooses_among_several_is_refused_with_the_remedy(head: str, word: str) -> None:
    with pytest.raises(ValueError, match="#SBATCH --container-image"):
        hoisted(f"{head}\nsrun --container-image={word} x")


@pytest.mark.parametrize(
    "head",
    [
        "I=a:1\nI=a:1",
        "I=a:1\nI='a:1'; export I=\"a:1\"",
        "I=${I:-a:1}\nexport I=a:1",
        'usage() { echo "usage (I=b:2)"; }\nI=a:1',
        "die() { printf '{ I=b:2 }; I=c'; }; I=a:1",
    ],
)
def test_an_image_that_a_script_says_twice_is_known(head: str) -> None:
    assert hoisted(f"{head}\nsrun --container-image=$I x") == "a:1"


@pytest.mark.parametrize("word", ["$1", "$IMAGE", "`cat image`", "$(cat image)"])
def test_an_image_that_only_the_running_script_knows_is_refused_with_the_remedy(word: str) -> None:
    with pytest.raises(ValueError, match="#SBATCH --container-image"):
        hoisted(f"srun --container-image={word} x")


def test_variables_of_variables_do_not_grow_without_end() -> None:
    lines = [f"V{index}={f'$V{index + 1}' * 100}" for index in range(9)]
    with pytest.raises(ValueError, match="known only once"):
        hoisted("\n".join([*lines, "srun --container-image=$V0 x"]))


@pytest.mark.parametrize(
    ("head", "more"),
    [("", "\n"), ("", "A=1\n"), ("srun --container-mounts=", "$("), ("srun --container-mounts=", "${a-")],
)
def test_a_script_takes_time_that_grows_with_it_and_no_faster(head: str, more: str) -> None:
    """The operator itself reads what a job submits from inside."""

    def seconds(length: int) -> float:
        script, begun = head + more * (length // len(more)), time.process_time()
        step_options(script, MOUNTS)
        return time.process_time() - begun

    short, long = (min(seconds(length) for _ in range(2)) for length in (3_000, 24_000))
    assert long < 0.05 + 24 * short  # eight times as long; by its square it would be 64


def test_variables_without_end_are_followed_for_a_few_steps_alone() -> None:
    def seconds(steps: int) -> float:
        lines = [f"V={'$W' * 1500}", "W=$V", *(f"srun --container-mounts=$V/{number} x" for number in range(steps))]
        begun = time.process_time()
        assert not any(option.is_known for option in step_options("\n".join(lines), MOUNTS))
        return time.process_time() - begun

    few, many = (min(seconds(steps) for _ in range(2)) for steps in (75, 600))
    assert many < 0.05 + 3 * few


def test_what_stands_in_for_variables_is_bounded_over_all_steps() -> None:
    script = f"M={'/a,' * 1000}\n" + "".join(f"srun --container-mounts=$M/{number} x\n" for number in range(500))
    options = step_options(script, MOUNTS)
    assert len(options) == 500
    assert options[0].is_known
    assert not options[-1].is_known
    assert sum(len(option.filled) for option in options) < 100_000


@pytest.mark.parametrize(
    ("script", "option", "filled"),
    [
        ("srun --container-image=a x\nsrun --container-image=b y\nsrun --container-image=a z", IMAGE, ["a", "b"]),
        ("srun --container-mounts=/a:/b,/c x", MOUNTS, ["/a:/b,/c"]),
        ('M=/a:/a\nsrun --container-mounts="$M,$PWD":/w x', MOUNTS, ["/a:/a,$PWD:/w"]),
        ('srun --container-mounts "$(pwd)":/w,/c x', MOUNTS, ["$(pwd):/w,/c"]),
        ('A="--container-mounts=/a" B="--container-image=i"\nsrun $A $B x', MOUNTS, ["/a"]),
        ("A=(\n  --container-mounts=/a\n)\nsrun ${A[@]} x", MOUNTS, ["/a"]),
        ("M=${M:-/a:/a}\nsrun --container-mounts=${N:-$M},${N:-${M}} x", MOUNTS, ["/a:/a,/a:/a"]),
        ("srun --container-mounts=$(pwd x", MOUNTS, ["$(pwd x"]),
        (f"M=/{'a' * 2000}:/b\nsrun --container-mounts=$M x", MOUNTS, [f"/{'a' * 2000}:/b"]),
        (f"M=/{'a' * 5000}:/b\nsrun --container-mounts=$M x", MOUNTS, ["$M"]),  # and nothing that is cut off
        ("echo use --container-image=IMAGE\n  sbatch --container-image=c next.sh", IMAGE, []),
    ],
)
def test_each_value_of_an_option_of_steps_is_found(script: str, option: str, filled: list[str]) -> None:
    assert [one.filled for one in step_options(script, option)] == filled
