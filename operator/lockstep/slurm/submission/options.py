"""Every option of sbatch, and what becomes of it here: nothing is dropped in silence."""

from __future__ import annotations

from typing import Mapping, Tuple

from lockstep.slurm.getopt import CommandOption, options
from lockstep.slurm.handling import HOLDS, IGNORED, MAPPED, REFUSED, SUPPORTED, rows

OPTIONS = options("""
    account/A: acctg-freq: array/a: batch: bb: bbf: begin/b: bell no-bell chdir/D: cluster-constraint: clusters/M:
    cluster:=clusters comment: consolidate-segments constraint/C: container: container-id: runtime: context: contiguous
    core-spec/S: cores-per-socket: cpu-freq: cpus-per-gpu: cpus-per-task/c: deadline: delay-boot: dependency/d:
    distribution/m: environment: error/e: exclude/x: exclusive? export: export-file: external extra: extra-node-info/B:
    get-user-env? gid: gpu-bind: gpu-freq: gpus/G: gpus-per-node: gpus-per-socket: gpus-per-task: gres: gres-flags:
    help/h hint: hold/H ignore-pbs immediate/I? input/i: job-name/J: kill-on-invalid-dep: licenses/L: mail-type:
    mail-user: mcs-label: mem: mem-bind: mem-per-cpu: mem-per-gpu: mincpus: network: nice? no-kill/k? no-requeue
    nodefile/F: nodelist/w: nodes/N: ntasks/n: ntasks-per-core: ntasks-per-gpu: ntasks-per-node:
    tasks-per-node:=ntasks-per-node ntasks-per-socket: ntasks-per-tres: oom-kill-step? open-mode: output/o:
    overcommit/O oversubscribe/s parsable partition/p: power: prefer: priority: profile: propagate? qos/q: quiet/Q
    reboot requeue? reservation: resources: resv-ports? segment: signal: sockets-per-node: spread-job spread-segments
    stepmgr switches: test-only thread-spec: threads-per-core: time/t: time-min: tmp: tres-bind: tres-per-task: uid:
    umask: usage use-min-nodes verbose/v version/V wait/W wait-all-nodes: wckey: wrap: x11?
    container-image: container-mounts: container-workdir: container-name: container-save: container-mount-home
    no-container-mount-home container-remap-root no-container-remap-root container-entrypoint no-container-entrypoint
    container-writable container-readonly container-env:
""")
"""Of sbatch itself, and at the end of pyxis."""

_WHOLE_NODES = "nodes are given whole"


_SUPPORTED = {
    "job-name": "name of the run", "nodes": "nodes, elastic.min", "partition": "queue", "nodelist": "placement.nodes",
    "nodefile": "placement.nodes", "exclude": "placement.excludeNodes", "time": "timeLimit", "time-min": "minTimeLimit",
    "deadline": "deadline", "begin": "notBefore", "dependency": "dependsOn, singleton", "array": "a TrainingRunSet",
    "hold": "suspend", "nice": "nice", "qos": "priorityClassName", "gpus-per-node": "gpusPerNode, placement.gpuTypes",
    "kill-on-invalid-dep": "onUnsatisfiable", "chdir": "the script's directory", "output": "the script's output",
    "error": "the script's errors", "input": "the script's input", "open-mode": "whether output is appended",
    "export": "env", "export-file": "env", "wrap": "the script", "test-only": "only an estimate",
    "wait": "waits for its end", "parsable": "the number alone", "quiet": "no notices", "verbose": "", "version": "",
    "help": "", "usage": "",
}  # fmt: skip
_MAPPED = {
    "gres": "gpusPerNode, placement.gpuTypes", "gpus": "gpusPerNode, the same on each node",
    "gpus-per-task": "gpusPerNode, by the tasks of a node", "tres-per-task": "gpusPerNode, by the tasks of a node",
    "ntasks": "tasks of a step that says none", "ntasks-per-node": "tasks of a step that says none",
    "ntasks-per-gpu": "tasks of a step that says none, or gpusPerNode by those",
    "ntasks-per-tres": "tasks of a step that says none, or gpusPerNode by those",
    "constraint": "labels that nodes must have", "signal": "launcher.batch.signal, onTimeLimit.leadTime",
    "requeue": "lost nodes are replaced in any case; with --signal onTimeLimit.action: Requeue",
    "no-requeue": "recovery.maxRestarts: 0; once it has begun, the script never runs again by itself",
    "switches": "placement.topology",
    "segment": "placement.topology", "contiguous": "placement.topology", "no-kill": "elastic", "account": "a label",
    "comment": "an annotation", "mail-type": "an annotation, for who sends notices",
    "mail-user": "an annotation, for who sends notices",
    "container-image": "image", "container-mounts": "paths that volumes of the queue have to have",
    "container-workdir": "the script's directory",
}  # fmt: skip

HANDLING: Mapping[str, Tuple[str, str]] = {
    **{name: (SUPPORTED, words) for name, words in _SUPPORTED.items()},
    **{name: (MAPPED, words) for name, words in _MAPPED.items()},
    **rows(HOLDS, "exclusive wait-all-nodes overcommit spread-job use-min-nodes ignore-pbs oversubscribe", ""),
    **rows(
        IGNORED,
        "cpus-per-task mem mem-per-cpu mem-per-gpu cpus-per-gpu mincpus tmp",
        f"{_WHOLE_NODES}, with all that is free on them, and none is looked at for having as much",
    ),
    **rows(
        IGNORED,
        "sockets-per-node cores-per-socket threads-per-core extra-node-info hint thread-spec core-spec",
        f"{_WHOLE_NODES}, with every core and thread of theirs",
    ),
    **rows(
        IGNORED,
        "ntasks-per-core ntasks-per-socket",
        "processes are bound to nothing; -N, -n and --ntasks-per-node say how many there are",
    ),
    **rows(
        IGNORED,
        "gpu-bind tres-bind mem-bind gres-flags distribution",
        "processes are bound to nothing; srun -m still distributes the tasks of a step",
    ),
    **rows(IGNORED, "cpu-freq gpu-freq power", "clock rates are the cluster's"),
    **rows(IGNORED, "profile acctg-freq", "metrics and goodput are kept of every run"),
    **rows(IGNORED, "propagate umask get-user-env", "the container's own apply; --export carries variables"),
    **rows(IGNORED, "wckey mcs-label context extra", "it is a label for Slurm's own accounting"),
    **rows(IGNORED, "delay-boot reboot", "nodes are not rebooted for a job"),
    **rows(IGNORED, "priority", "the queue decides; --qos names a PriorityClass, --nice gives priority up"),
    **rows(IGNORED, "network", "nodes use their own network"),
    **rows(IGNORED, "oom-kill-step", "the kernel kills one process, and the step is told of it"),
    **rows(IGNORED, "x11", "there is no display to forward"),
    **rows(IGNORED, "stepmgr resv-ports immediate bell no-bell consolidate-segments spread-segments runtime", ""),
    **rows(IGNORED, "environment", "it names a container: write --container-image=IMAGE"),
    **rows(
        IGNORED,
        "container-name container-save container-mount-home no-container-mount-home container-remap-root "
        "no-container-remap-root container-entrypoint no-container-entrypoint container-writable container-readonly "
        "container-env",
        "the job runs in its image, as its queue says, on every node",
    ),
    **rows(
        REFUSED, "reservation", "maintenance windows are kept free of runs here, and none starts in one; leave it out"
    ),
    **rows(REFUSED, "gpus-per-socket", "sockets are not counted here; write --gpus-per-node"),
    **rows(REFUSED, "licenses", "licences are not counted here; remove -L, and have a queue limit who may run at once"),
    **rows(REFUSED, "bb bbf", "there are no burst buffers; mount a volume instead"),
    **rows(REFUSED, "clusters", "there is one cluster here; submit to the other one there"),
    **rows(REFUSED, "cluster-constraint", "there is one cluster here; use --constraint"),
    **rows(REFUSED, "uid gid", "a job runs as its submitter; the pod's securityContext says which user that is"),
    **rows(REFUSED, "container container-id", "OCI bundles are not run; write --container-image=IMAGE"),
    **rows(REFUSED, "external", "nothing would run; it is for Slurm's own use"),
    **rows(REFUSED, "resources", "there are no hierarchical resources; ask for nodes and GPUs"),
    **rows(REFUSED, "batch", "the script runs on the first node; choose all nodes by --constraint"),
    **rows(REFUSED, "prefer", "features are required or not; use --constraint, or leave it out"),
}
"""By name: (what becomes of it, why or what instead)."""

_OF_ENVIRONMENT = """
    account acctg-freq batch cluster-constraint clusters consolidate-segments container container-id runtime
    constraint core-spec cpus-per-gpu delay-boot distribution exclusive export get-user-env gres gres-flags gpus
    gpu-bind gpu-freq gpus-per-node gpus-per-socket gpus-per-task hint job-name mem-bind mem-per-cpu mem-per-gpu
    network no-kill no-requeue open-mode overcommit partition power profile qos requeue reservation signal
    spread-job spread-segments thread-spec threads-per-core tres-bind tres-per-task use-min-nodes wait
    wait-all-nodes wckey error input output
"""
ENVIRONMENT: Mapping[str, str] = {
    **{
        f"SBATCH_{name.upper().replace('-', '_')}": name
        for name in _OF_ENVIRONMENT.split()
    },
    "SBATCH_ARRAY_INX": "array", "SBATCH_BURST_BUFFER": "bb", "SBATCH_CPU_FREQ_REQ": "cpu-freq",
    "SBATCH_MEM_PER_NODE": "mem", "SBATCH_REQ_SWITCH": "switches", "SBATCH_SEGMENT_SIZE": "segment",
    "SBATCH_TIMELIMIT": "time", "SLURM_CLUSTERS": "clusters", "SLURM_HINT": "hint",
}  # fmt: skip
"""Variables that stand for options, between the script's and the command line's."""


def known(name: str) -> CommandOption:
    return next(option for option in OPTIONS if option.name == name)
