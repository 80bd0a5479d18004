"""Ray: the command as typed, as the driver on rank 0."""

from typing import Any

import pytest

from lockstep.core.pods.launchers import has_token, launcher_of, may_join, worker_options
from support.launchers import launched

COMMAND = ["python", "train.py"]
RESTART = {"ray": {"onNodeLoss": "Restart"}}


@pytest.mark.parametrize("world", [1, 4])
def test_the_driver_decides(world: int) -> None:
    assert launcher_of(launched("Ray", COMMAND)).deciding_ranks(world) == range(1)


@pytest.mark.parametrize("launcher", ["Plain", "Torchrun", "JAX", "MPI", "DeepSpeed", "Ray"])
def test_who_takes_orders_from_the_network_has_a_token(launcher: str) -> None:
    assert has_token(launched(launcher, COMMAND)) is (launcher == "Ray")


def test_of_a_spec_that_cannot_be_read_any_more_ray_may_still_need_its_token() -> None:
    assert has_token(None)


@pytest.mark.parametrize("steps", [True, False])
def test_ray_reaches_its_nodes_without_steps(steps: bool) -> None:
    spec = launched("Ray", COMMAND, settings={"steps": steps})
    assert launcher_of(spec).steps(spec) is steps


def test_the_worker_gets_the_arguments_of_ray_start() -> None:
    spec = launched("Ray", COMMAND, entrypoint=["/init"], settings={"ray": {"arguments": ["--num-cpus=4"]}})
    options = worker_options(spec, 8)
    assert (options["entrypoint"], options["arguments"]) == (1, ["--num-cpus=4"])


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"settings": {"steps": True}}, "spec.launcher.steps"),
        ({"checkpoint": {"shared": {"claimName": "c"}, "layout": "Shared"}}, "spec.checkpoint.layout"),
    ],
)
def test_what_an_attempt_that_goes_on_cannot_have_is_refused_with_the_remedy(
    fields: dict[str, Any], field: str
) -> None:
    joins = launched("Ray", COMMAND, **fields)
    [problem] = launcher_of(joins).problems(joins)
    assert problem.field == field
    assert "onNodeLoss: Restart" in problem.message
    settings = {"ray": {"onNodeLoss": "Restart"}, **fields.get("settings", {})}
    restarts = launched("Ray", COMMAND, **{**fields, "settings": settings})
    assert launcher_of(restarts).problems(restarts) == []


@pytest.mark.parametrize("signal", ["SIGUSR1", "SIGUSR2", "SIGHUP", "SIGTERM", None])
@pytest.mark.parametrize("settings", [{}, RESTART])
def test_a_signal_at_which_ray_ends_the_driver_is_no_request_to_save(
    settings: dict[str, Any], signal: str | None
) -> None:
    checkpoint = {"shared": {"claimName": "c"}, **({"signal": signal} if signal else {})}
    spec = launched("Ray", COMMAND, settings=settings, checkpoint=checkpoint)
    problems = launcher_of(spec).problems(spec)
    assert [problem.field for problem in problems] == (["spec.checkpoint.signal"] if signal == "SIGTERM" else [])
    assert all("write SIGUSR1" in problem.message for problem in problems)


@pytest.mark.parametrize(("settings", "joins"), [({}, True), ({"ray": {}}, True), (RESTART, False)])
def test_nodes_join_an_attempt_that_goes_on_unless_told(settings: dict[str, Any], joins: bool) -> None:
    spec = launched("Ray", COMMAND, settings=settings)
    assert may_join(spec) is worker_options(spec, 0)["joins"] is joins
    assert not may_join(launched("MPI", ["mpirun", "t"]))
    assert not may_join(None)


@pytest.mark.parametrize(
    ("command", "arguments", "field", "words"),
    [
        (COMMAND, ["--num-cpus=4", "--resources", '{"a": 1}'], "", ""),
        (
            COMMAND,
            ["--num-cpus=4", "--port=6379"],
            "spec.launcher.ray.arguments[1]",
            "--port: each attempt has its own",
        ),
        (COMMAND, ["--head"], "spec.launcher.ray.arguments[0]", "leave it out"),
        (COMMAND, ["--temp-dir", "/tmp/x"], "spec.launcher.ray.arguments[0]", "scratch"),
        (["/venv/bin/ray", "symmetric-run", "--", "python"], [], "spec.command", "ray symmetric-run starts Ray itself"),
        (["ray", "start", "--head"], [], "spec.command", "leave launcher out"),
        (["ray", "job", "submit", "--", "python", "t.py"], [], "", ""),
    ],
)
def test_what_starts_ray_twice_or_takes_its_ports_is_refused(
    command: list[str], arguments: list[str], field: str, words: str
) -> None:
    settings: dict[str, Any] = {"ray": {"arguments": arguments}}
    spec = launched("Ray", command, settings=settings)
    problems = launcher_of(spec).problems(spec)
    assert [problem.field for problem in problems] == ([field] if field else [])
    assert all(words in problem.message for problem in problems)
