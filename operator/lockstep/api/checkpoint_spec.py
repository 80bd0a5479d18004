"""Where checkpoints are, how a valid one is told, how often one is saved: the `checkpoint` block of a run."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from lockstep.api.base.schema import Changeable, Duration, IntOrString, ObjectName, Rule, SpecModel, TunableDuration

CheckpointFormat = Literal[
    "Auto",
    "Manifest",
    "TorchDCP",
    "Megatron",
    "DeepSpeed",
    "HuggingFace",
    "Lightning",
    "NeMo",
    "Orbax",
    "Accelerate",
    "Torch",
    "RayTrain",
]
StartMode = Literal["Auto", "Fresh", "Require"]
SaveSignal = Literal["SIGUSR1", "SIGUSR2", "SIGHUP", "SIGTERM"]
ResumeBy = Literal["Env", "Pointer"]
Layout = Literal["PerAttempt", "Shared"]

WhileSuspended = Changeable.WHILE_SUSPENDED
Never = Changeable.NEVER
Word = Annotated[str, Field(min_length=1, max_length=63)]
RelativePath = Annotated[
    str,
    Field(min_length=1, max_length=512),
    Rule(
        "!self.split('/').exists(part, part in ['', '.', '..'])",
        "write a path relative to the claim, without '.' or '..', e.g. team/llama-70b",
    ),
]


FileName = Annotated[
    str,
    Field(min_length=1, max_length=128),
    Rule(
        "!self.contains('/') && self.split('{step}').size() <= 2 && !self.replace('{step}', '').matches('[{}]')",
        "write the name of a file, with {step} at most once in the place of the number, e.g. ckpt_{step}.pt",
    ),
]


def _checked_count(value: int | str) -> int | str:
    if value == "Disabled" or (isinstance(value, int) and 1 <= value <= 1000):
        return value
    raise ValueError(f"{value!r}: write a number from 1 to 1000, or Disabled")


class LocalTier(SpecModel):
    """Checkpoints on the nodes' own disks."""

    storage: Annotated[Word, Never]
    """A storage that the administrator named in the operator's configuration."""
    keep_last: Annotated[
        int | str,
        IntOrString(),
        Rule(
            "type(self) == int ? self >= 1 && self <= 1000 : self == 'Disabled'",
            "write how many of the newest valid steps of earlier attempts stay, e.g. 2, or Disabled to remove none",
        ),
        AfterValidator(_checked_count),
    ] = 2
    """Of what earlier attempts saved, so many of the newest valid steps stay; older ones are removed once a later
    attempt has started. Disabled: nothing is removed."""


class SharedTier(SpecModel):
    """Checkpoints on storage that every node sees."""

    claim_name: ObjectName
    """A PersistentVolumeClaim of the run's namespace that every node can mount."""
    path: RelativePath | None = None
    """Directory inside the claim; <namespace>/<name> when left out."""


class SecretReference(SpecModel):
    """A Secret of the run's namespace."""

    name: ObjectName
    """Its name."""


class RetentionSpec(SpecModel):
    """Which older checkpoints may go. The last valid one never does."""

    keep_last: Annotated[int, Field(ge=1, le=1000)]
    """So many of the newest valid ones stay, two at least."""
    keep_every: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """Steps that are a multiple of this stay as well."""
    keep_for: Duration | None = None
    """Those younger than this stay as well."""


class ArchiveTier(SpecModel):
    """Copies of valid shared checkpoints in an object store."""

    uri: Annotated[
        str,
        Field(min_length=6, max_length=512),
        Rule(
            "self.matches('^(s3|gs|az)://[^/]+')",
            "write the store as s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
        ),
    ]
    """Where to, e.g. s3://golden/llama-70b."""
    interval: Duration = "6h"
    """At least so long between two copies."""
    credentials_secret_ref: SecretReference | None = None
    """Secret whose keys become the environment of the copying job; the service account's rights when left out."""
    endpoint: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """URL of an S3-compatible server; the provider's own when left out."""
    service_account_name: ObjectName | None = None
    """Service account of the copying job; the namespace's default when left out."""
    retention: RetentionSpec | None = None
    """Which older copies are removed; none when left out."""


class CadenceSpec(SpecModel):
    """How often a checkpoint is saved."""

    interval: TunableDuration = "Adaptive"
    """Adaptive: from the measured cost of a save and the failure rate. Disabled: the program alone decides.
    A duration: that often."""
    min: Duration = "1m"
    """Never more often."""
    max: Duration = "2h"
    """Never less often."""


class StartSpec(SpecModel):
    """Where the first attempt starts."""

    mode: StartMode = "Auto"
    """Auto: from the newest valid checkpoint, else from step 0. Fresh: from step 0.
    Require: from a checkpoint or not at all."""
    run: ObjectName | None = None
    """Start from the newest valid checkpoint of this run of the same namespace and claim."""
    path: RelativePath | None = None
    """Start from the checkpoints below this directory of the shared claim."""
    step: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Start from exactly this step of that run or path."""
    accept_copy: bool = False
    """What lies there is a copy that has not kept the times of its files: it is judged by names, sizes and checksums
    alone, so that the remains of a save over an older one pass for a whole one."""

    cross_field_rules: ClassVar = (
        Rule("!(has(self.run) && has(self.path))", "name a run or a path to start from, not both", field=".path"),
        Rule(
            "!has(self.step) || has(self.run) || has(self.path)",
            "says which step of another run or path; name that run or path as well",
            field=".step",
        ),
        Rule(
            "!has(self.acceptCopy) || !self.acceptCopy || has(self.run) || has(self.path)",
            "says of another run or path that it is a copy; name that run or path as well",
            field=".acceptCopy",
        ),
        Rule(
            "self.mode != 'Fresh' || !(has(self.run) || has(self.path))",
            "mode Fresh starts at step 0; leave run and path out, or write mode: Require",
            field=".mode",
        ),
    )


class CheckpointSpec(SpecModel):
    """Where checkpoints are and how to tell a valid one."""

    format: Annotated[CheckpointFormat, Never] = "Auto"
    """How a checkpoint is recognised as complete. Auto tells the formats apart by their files."""
    pattern: Annotated[FileName, Never] | None = None
    """How single files of torch.save are called: ckpt_{step}.pt, or a fixed name such as ckpt.pt, whose step is read
    inside. Nothing else is a checkpoint then."""
    local: LocalTier | None = None
    """The fast tier, mounted at /local-checkpoints."""
    shared: Annotated[SharedTier, Never] | None = None
    """The tier that survives the loss of a node, mounted at /shared-checkpoints."""
    archive: ArchiveTier | None = None
    """The tier that survives the loss of the cluster."""
    retention: RetentionSpec | None = None
    """Which older checkpoints of the shared tier are removed; none when left out. `local.keepLast` is for the nodes'
    own disks."""
    cadence: CadenceSpec = CadenceSpec()
    """How often a checkpoint is saved."""
    signal: SaveSignal | None = None
    """Sent to ask for a save, to processes that catch it; left out: asked for through the control file only."""
    grace_period: Duration = "5m"
    """Longest wait for a save before the gang is stopped anyway. A stop or a drain, but for that at the time limit,
    waits no longer than the operator's `longestGrace` (an hour), or 5 minutes if that is less."""
    resume_by: Annotated[ResumeBy, WhileSuspended] | None = None
    """Env: the program reads LOCKSTEP_RESUME_PATH. Pointer: files such as `latest` are rewritten before the start.
    Pointer when left out for Megatron, DeepSpeed, HuggingFace and NeMo, else Env."""
    layout: Annotated[Layout, Never] = "PerAttempt"
    """PerAttempt: each attempt saves in a directory of its own. Shared: all attempts save in one directory, and a
    lost writer has to be confirmed stopped or fenced first."""
    trust_times: Annotated[bool, WhileSuspended] = True
    """Whether the order of the times of its files is held against a save. false: their file system, or the backup that
    they are from, keeps none; then the remains of a save over an older one may pass for a whole one."""
    start: Annotated[StartSpec, WhileSuspended] = StartSpec()
    """Where the first attempt starts."""

    @property
    def named_format(self) -> str:
        """The format, with the pattern of its files behind it where there is one."""
        return f"Torch:{self.pattern}" if self.pattern else self.format

    cross_field_rules: ClassVar = (
        Rule(
            "!has(self.pattern) || !has(self.format) || self.format in ['Auto', 'Torch']",
            "names files of torch.save; write format: Torch, or leave the format out",
            field=".pattern",
        ),
        Rule(
            "has(self.local) || has(self.shared)",
            "name a tier, e.g. shared: {claimName: my-claim}; without one there is nothing to resume from",
        ),
        Rule(
            "!has(self.archive) || has(self.shared)",
            "copies checkpoints of the shared tier; name one: shared: {claimName: my-claim}",
            field=".archive",
        ),
        Rule(
            "self.layout != 'Shared' || has(self.shared)",
            "layout Shared needs the shared tier; name one: shared: {claimName: my-claim}",
            field=".layout",
        ),
    )
