"""Every option of srun, and what becomes of it in a step."""

from __future__ import annotations

from typing import Mapping, Tuple

from lockstep.slurm.getopt import options
from lockstep.slurm.handling import IGNORED, OF_ALLOCATION, REFUSED, SUPPORTED, rows

OPTIONS = options("""
    accel-bind: account/A: acctg-freq: async bb: bbf: bcast-exclude: bcast? begin/b: chdir/D: cluster-constraint:
    cluster:=clusters clusters/M: comment: compress? consolidate-segments constraint/C: container-id: container:
    context: contiguous core-spec/S: cores-per-socket: cpu-bind: cpu_bind:=cpu-bind cpu-freq: cpus-per-gpu:
    cpus-per-task/c: deadline: debugger-test delay-boot: dependency/d: disable-status/X distribution/m: environment:
    epilog: error/e: exact exclude/x: exclusive? export: external-launcher? extra-node-info/B: extra: gpu-bind:
    gpu-freq: gpus-per-node: gpus-per-socket: gpus-per-task: gpus/G: gres-flags: gres: help/h het-group: hint: hold/H
    ignore-signals: immediate/I? input/i: interactive job-name/J: jobid: kill-on-bad-exit/K? label/l licenses/L:
    mail-type: mail-user: mcs-label: mem-bind: mem-per-cpu: mem-per-gpu: mem-update: mem: mincpus: mpi: msg-timeout:
    multi-prog network: nice? no-allocate/Z no-kill/k? nodefile/F: nodelist/w: nodes/N: ntasks-per-core: ntasks-per-gpu:
    ntasks-per-node: ntasks-per-socket: ntasks-per-tres: ntasks/n: oom-kill-step? open-mode: output/o: overcommit/O
    overlap? oversubscribe/s pack-group:=het-group parsable partition/p: power: prefer: preserve-env/E priority:
    profile: prolog: propagate? pty? qos/q: quiet/Q quit-on-interrupt reboot relative/r: reservation: resources:
    resv-ports? runtime: segment: send-libs? signal: slurmd-debug: sockets-per-node: spread-job spread-segments stepmgr
    switches: task-epilog: task-prolog: tasks-per-node:=ntasks-per-node test-only thread-spec: threads-per-core:
    threads/T: time-min: time/t: tmp: treewidth: tres-bind: tres-per-task: unbuffered/u usage use-min-nodes verbose/v
    version/V wait-for-children wait/W: wckey: whole x11?
    container-image: container-mounts: container-workdir: container-name: container-save: container-mount-home
    no-container-mount-home container-remap-root no-container-remap-root container-entrypoint no-container-entrypoint
    container-writable container-readonly container-env:
""")


HANDLING: Mapping[str, Tuple[str, str]] = {
    **rows(
        SUPPORTED,
        "chdir cpus-per-task disable-status distribution error exclude export het-group ignore-signals "
        "input job-name jobid kill-on-bad-exit label nodelist nodefile nodes ntasks ntasks-per-node open-mode output "
        "preserve-env quiet quit-on-interrupt relative time unbuffered verbose version help usage wait immediate "
        "container-image container-workdir container-mounts",
    ),
    **rows(
        SUPPORTED,
        "gpus gpus-per-node gpus-per-task gres tres-per-task ntasks-per-gpu ntasks-per-tres cpus-per-gpu overlap "
        "external-launcher",
    ),
    # Whole nodes are the job's own, and its steps share all of them but the GPUs that one asks for.
    **rows(SUPPORTED, "exact exclusive whole overcommit oversubscribe mem mem-per-cpu mem-per-gpu mem-update"),
    **rows(
        OF_ALLOCATION,
        "account acctg-freq bb bbf begin cluster-constraint clusters comment consolidate-segments constraint context "
        "contiguous deadline delay-boot dependency extra hold licenses mail-type mail-user mcs-label mincpus "
        "nice no-kill partition power prefer priority qos reboot reservation resources segment signal spread-job "
        "spread-segments stepmgr switches time-min tmp use-min-nodes wckey parsable",
    ),
    **rows(
        IGNORED,
        "core-spec cores-per-socket extra-node-info hint sockets-per-node thread-spec threads-per-core",
        "processes are bound to nothing",
    ),
    **rows(
        IGNORED,
        "ntasks-per-core ntasks-per-socket",
        "processes are bound to nothing; -n and --ntasks-per-node say how many tasks there are",
    ),
    **rows(IGNORED, "mpi", "no PMI server is here: start MPI programs by mpirun, which calls srun itself"),
    **rows(IGNORED, "accel-bind cpu-bind gpu-bind gres-flags mem-bind tres-bind", "processes are bound to nothing"),
    **rows(IGNORED, "cpu-freq gpu-freq", "clock rates are the cluster's"),
    **rows(IGNORED, "network resv-ports", "nodes use their own network and any free port"),
    **rows(IGNORED, "profile oom-kill-step", "the run's own metrics and causes tell of it"),
    **rows(IGNORED, "propagate", "the container's limits apply"),
    **rows(IGNORED, "pty", "there is no terminal; the step runs without"),
    **rows(IGNORED, "x11", "there is no display to forward"),
    **rows(IGNORED, "msg-timeout slurmd-debug threads treewidth debugger-test send-libs compress runtime interactive"),
    **rows(IGNORED, "wait-for-children", "a task has ended when its process has"),
    **rows(IGNORED, "environment", "the step runs in the image of the job"),
    **rows(
        IGNORED,
        "container-name container-save container-mount-home no-container-mount-home container-remap-root "
        "no-container-remap-root container-entrypoint no-container-entrypoint container-writable container-readonly "
        "container-env",
        "the step runs in the image of the job",
    ),
    **rows(REFUSED, "gpus-per-socket", "sockets are not counted here; write --gpus-per-node"),
    **rows(REFUSED, "multi-prog", "have one command choose by SLURM_PROCID"),
    **rows(REFUSED, "prolog epilog task-prolog task-epilog", "write it into the command, e.g. srun bash -c 'a && b'"),
    **rows(REFUSED, "bcast bcast-exclude", "call sbcast first, or have the program on a shared volume or in the image"),
    **rows(REFUSED, "container container-id", "OCI bundles are not run; the step runs in the image of the job"),
    **rows(REFUSED, "no-allocate", "steps run on nodes of their job"),
    **rows(REFUSED, "async", "put the step into the background: srun ... &"),
    **rows(REFUSED, "test-only", "a step starts at once"),
}

ENVIRONMENT: Mapping[str, str] = {
    "SLURM_CPUS_PER_TASK": "", "SRUN_CPUS_PER_TASK": "cpus-per-task", "SLURM_DISTRIBUTION": "distribution",
    "SLURM_EXPORT_ENV": "export", "SRUN_EXPORT_ENV": "export", "SLURM_GPUS_PER_TASK": "gpus-per-task",
    "SLURM_KILL_BAD_EXIT": "kill-on-bad-exit", "SLURM_LABELIO": "label", "SLURM_JOB_NUM_NODES": "nodes",
    "SLURM_NPROCS": "ntasks", "SLURM_NTASKS": "ntasks", "SLURM_NTASKS_PER_NODE": "ntasks-per-node",
    "SLURM_OPEN_MODE": "open-mode", "SLURM_REMOTE_CWD": "chdir", "SLURM_WORKING_DIR": "chdir",
    "SLURM_STDERRMODE": "error", "SLURM_STDINMODE": "input", "SLURM_STDOUTMODE": "output",
    "SRUN_ERROR": "error", "SRUN_INPUT": "input", "SRUN_OUTPUT": "output", "SLURM_WAIT": "wait",
    "SLURM_UNBUFFEREDIO": "unbuffered", "SLURM_JOB_NAME": "job-name", "SLURM_OVERLAP": "overlap",
    "SLURM_EXTERNAL_LAUNCHER": "external-launcher",
    "SLURM_NTASKS_PER_GPU": "ntasks-per-gpu", "SLURM_NTASKS_PER_TRES": "ntasks-per-tres",
    "SLURM_TRES_PER_TASK": "tres-per-task", "SLURM_CPUS_PER_GPU": "cpus-per-gpu",
}  # fmt: skip
"""Variables that stand for options of a step, in the order in which later ones win. Empty: no longer read."""
