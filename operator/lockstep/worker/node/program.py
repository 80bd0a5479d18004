"""What an attempt runs on this node: the command as it is started, with its environment."""

from __future__ import annotations

import os
from typing import List, NamedTuple, Optional, Sequence

from lockstep.worker.child.launch import (
    command_environment,
    expand,
    is_passed_on,
    launcher_command,
    launcher_environment,
    python_environment,
)
from lockstep.worker.child.training import Catchers, all_but_ray, all_that_catch
from lockstep.worker.settings import JSON, Settings
from lockstep.worker.start import Launch
from lockstep.worker.steps.batch import BatchShell, batch_shell
from lockstep.worker.steps.service import StepService


class Program(NamedTuple):
    """``serves``: descriptors that it inherits; ``job``: the shell of a batch script; ``catchers``: who is asked by a
    signal to save."""

    command: List[str]
    environment: JSON
    serves: Sequence[int]
    job: Optional[BatchShell]
    catchers: Catchers


def program_of(settings: Settings, launch: Launch, contract: JSON, steps: StepService) -> Program:
    """Raises LaunchError. Steps are served from then on, where the program may ask for some."""
    # What steers the worker is not the training code's business; users cannot set variables of this name.
    environment = {key: value for key, value in os.environ.items() if is_passed_on(key)}
    rendezvous = launcher_environment(settings, launch)
    environment.update(contract, **rendezvous)
    environment.update(python_environment(settings, launch, environment))
    environment.update(steps.environment(launch, environment))
    command = [expand(argument, environment) for argument in launcher_command(settings, launch)]
    # Who a node is only itself knows; but what a batch script exports is for all of its steps.
    own = list(rendezvous) if launch.batch is None else []
    job: Optional[BatchShell] = None
    serves: Sequence[int] = ()
    if steps.stands_by(launch):
        command, serves = steps.command(own), steps.passed
    else:
        if steps.wanted:
            steps.serve(environment, own)
        environment = command_environment(settings, environment)
    if launch.batch is not None:
        job = batch_shell(launch, steps.directory(launch), environment)
        command, environment = (job.command or command), job.environment
    catchers = job.catchers if job is not None else all_but_ray if settings.launcher == "Ray" else all_that_catch
    return Program(command, environment, serves, job, catchers)
