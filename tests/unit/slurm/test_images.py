"""Images and mounts as pyxis names them."""

import pytest

from lockstep.slurm.images import are_the_same, image, insides, is_below, of_step
from lockstep.slurm.layout import LayoutError


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
    ("one", "other", "same"),
    [
        ("ubuntu", "docker.io/library/ubuntu:latest", True),
        ("pytorch/pytorch:2", "docker.io/pytorch/pytorch:2", True),
        ("r.io/a/b", "r.io/a/b:latest", True),
        ("localhost/a", "docker.io/localhost/a", False),
        ("r.io/a/b:1", "r.io/a/b:2", False),
        ("r.io:5000/a", "a", False),
    ],
)
def test_names_of_one_image_are_the_same_with_and_without_what_is_meant_anyway(
    one: str, other: str, same: bool
) -> None:
    assert are_the_same(one, other) is same


@pytest.mark.parametrize(
    ("mounts", "paths"),
    [("", []), ("/a", ["/a"]), ("/a:/b", ["/b"]), ("/a:/b:ro,/c", ["/b", "/c"]), ("$PWD:/w,", ["/w"])],
)
def test_a_mount_is_known_by_its_path_inside(mounts: str, paths: list[str]) -> None:
    assert insides(mounts) == paths


@pytest.mark.parametrize(("path", "below"), [("/a", True), ("/a/b", True), ("/ab", False), ("/a/../c", False)])
def test_a_path_is_below_a_mount_by_whole_names(path: str, below: bool) -> None:
    assert is_below(path, ["/x", "/a/"]) is below


@pytest.mark.parametrize(
    ("image_of_step", "mounts", "said"),
    [
        ("", "", []),
        ("r.io#a/b:1", "/fsx:/data/x", []),
        ("/fsx/a.sqsh", "", ["--container-image=/fsx/a.sqsh is not used: steps run in the job's image r.io/a/b:1"]),
        ("", "/data,/fsx:/fsx", ["--container-mounts: /fsx is on no volume of the job"]),
    ],
)
def test_srun_says_what_the_step_does_not_get(image_of_step: str, mounts: str, said: list[str]) -> None:
    told = of_step(image_of_step, mounts, "r.io/a/b:1", ["/data"])
    assert [words in line for words, line in zip(said, told, strict=True)] == [True] * len(said)


def test_a_step_with_another_image_than_its_jobs_does_not_begin() -> None:
    with pytest.raises(LayoutError, match=r"--container-image=b: the job runs in a, and a step has no other"):
        of_step("b", "", "a", None)
    assert of_step("b", "/x", "", None) == []  # of a job whose image nobody told
