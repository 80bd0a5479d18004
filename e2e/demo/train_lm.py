"""Trains a small byte-level transformer, data-parallel in JAX on CPU, one process per node.

What a trainer has to do for exact resumption is all here, in few lines each: a batch is a function of
seed, step and rank alone; a checkpoint holds the whole optimizer state; it is committed by a manifest
that is written last. Two runs with the same settings therefore agree bit for bit in every step, however
often one of them was stopped and resumed. The lineage files in the checkpoint directory prove it.

Reads JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID and the LOCKSTEP_ variables; without
them it trains alone and saves nothing.
"""

import argparse
import hashlib
import json
import os
import sys
import time
import traceback
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

# Several trainers share one machine's cores in the demo; and one thread adds up in one order.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

CORPUS = Path(__file__).with_name("corpus.txt")
VOCABULARY = 128  # ASCII
ENTRY_BYTES = 256  # room for one file's line of the manifest, as JSON


# --- Checkpoints by Lockstep's manifest convention. Copy these three functions into any trainer. ---


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable, as fsync of a file makes its bytes."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, data: bytes) -> dict[str, Any]:
    """Writes the file whole or not at all; returns its entry for the manifest."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_directory(path.parent)
    return {"name": path.name, "bytes": len(data), "crc32": f"{zlib.crc32(data):08x}"}


def commit(directory: Path, step: int, files: list[dict[str, Any]], rank: int | None = None) -> None:
    """Writes the manifest. Only after every file in it is durable: it is what makes the checkpoint valid."""
    manifest = {
        "format": "lockstep/1",
        "runUID": os.environ["LOCKSTEP_RUN_UID"],
        "attempt": int(os.environ["LOCKSTEP_ATTEMPT"]),
        "step": step,
        "world": int(os.environ["LOCKSTEP_NNODES"]),
        "files": files,
    }
    if rank is not None:
        manifest["rank"] = rank
    write_durably(directory / "manifest.json", json.dumps(manifest).encode())


# --- The model: a pre-norm transformer whose parameters, gradients and Adam moments are flat vectors. ---


def initial_parameters(args: argparse.Namespace) -> dict[str, Any]:
    """Parameters by name; those of the layers are stacked along the first axis."""
    random = np.random.default_rng(args.seed)
    width, layers = args.width, args.layers

    def normal(*shape: int, fan_in: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32) * np.float32(fan_in**-0.5)

    return {
        "embedding": normal(VOCABULARY, width, fan_in=width),
        "position": normal(args.context, width, fan_in=width),
        "layers": {
            "qkv": normal(layers, width, 3 * width, fan_in=width),
            "out": normal(layers, width, width, fan_in=width * layers),
            "up": normal(layers, width, 4 * width, fan_in=width),
            "down": normal(layers, 4 * width, width, fan_in=4 * width * layers),
        },
        "unembedding": normal(width, VOCABULARY, fan_in=width),
    }


def next_byte_loss(parameters: dict[str, Any], tokens: jax.Array, heads: int) -> jax.Array:
    """Mean cross-entropy in nats of every next byte; tokens is int32[batch, context + 1]."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    length = inputs.shape[1]
    causal = jnp.tril(jnp.ones((length, length), bool))

    def normalise(x: jax.Array) -> jax.Array:
        return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)

    def layer(x: jax.Array, weights: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        q, k, v = (
            part.reshape(*part.shape[:2], heads, -1) for part in jnp.split(normalise(x) @ weights["qkv"], 3, axis=-1)
        )
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        weighted = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
        x += jnp.einsum("bhqk,bkhd->bqhd", weighted, v).reshape(x.shape) @ weights["out"]
        return x + jax.nn.gelu(normalise(x) @ weights["up"]) @ weights["down"], None

    x, _ = jax.lax.scan(layer, parameters["embedding"][inputs] + parameters["position"], parameters["layers"])
    predicted = jax.nn.log_softmax(normalise(x) @ parameters["unembedding"])
    return -jnp.mean(jnp.take_along_axis(predicted, targets[..., None], axis=-1))


# --- Training. State is float32[3, parameters]: parameters, Adam's first and second moments. ---


class Trainer:
    """The compiled step over all processes, and the state it is applied to."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.rank, self.world = jax.process_index(), jax.process_count()
        # One device per process, in rank order, so that sums are taken in the same order every time.
        self.mesh = Mesh(sorted(jax.devices(), key=lambda device: device.process_index), ("data",))
        flat, self._unravel = ravel_pytree(initial_parameters(args))
        self._replicated = NamedSharding(self.mesh, PartitionSpec())
        self._by_rank = NamedSharding(self.mesh, PartitionSpec("data"))
        self.restore(np.stack([np.asarray(flat), np.zeros_like(flat), np.zeros_like(flat)]))
        self._step = self._compile(args)

    def restore(self, state: np.ndarray) -> None:
        """Puts the same full state on every process."""
        self.state = jax.make_array_from_process_local_data(self._replicated, state)

    def advance(self, step: int, tokens: np.ndarray) -> float:
        """One step on this rank's batch; the loss is the mean over all ranks."""
        batch = jax.make_array_from_process_local_data(self._by_rank, tokens)
        self.state, loss = self._step(self.state, batch, jnp.float32(step))
        return float(loss)

    def shard(self) -> np.ndarray:
        """This rank's columns of the state."""
        return np.array_split(np.asarray(self.state.addressable_data(0)), self.world, axis=1)[self.rank]

    def gather(self, row: np.ndarray) -> np.ndarray:
        """The rows of all ranks. Nobody passes before everybody is here, so this is the barrier as well."""
        return np.asarray(multihost_utils.process_allgather(row, tiled=False)).reshape(self.world, *row.shape)

    def _compile(self, args: argparse.Namespace) -> Any:
        def step(state: jax.Array, tokens: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
            parameters, first, second = state

            def loss_of(flat: jax.Array) -> jax.Array:
                return next_byte_loss(self._unravel(flat), tokens, args.heads)

            loss, gradient = jax.value_and_grad(loss_of)(parameters)
            loss, gradient = jax.lax.pmean((loss, gradient), "data")
            first = 0.9 * first + 0.1 * gradient
            second = 0.99 * second + 0.01 * gradient * gradient
            rate = args.learning_rate * jnp.minimum(1.0, number / 20)
            update = first / (1 - 0.9**number) / (jnp.sqrt(second / (1 - 0.99**number)) + 1e-8)
            return jnp.stack([parameters - rate * update, first, second]), loss

        everywhere, by_rank = PartitionSpec(), PartitionSpec("data")
        over_ranks = jax.shard_map(
            step,
            mesh=self.mesh,
            in_specs=(everywhere, by_rank, everywhere),
            out_specs=(everywhere, everywhere),
            check_vma=False,  # gradients are averaged by hand
        )
        return jax.jit(over_ranks, donate_argnums=0)


def batch_of(corpus: np.ndarray, args: argparse.Namespace, step: int, rank: int) -> np.ndarray:
    """int32[batch, context + 1]: a function of seed, step and rank, whichever attempt asks."""
    starts = [
        int.from_bytes(hashlib.sha256(f"{args.seed}/{step}/{rank}/{row}".encode()).digest()[:8], "big")
        % (len(corpus) - args.context - 1)
        for row in range(args.batch)
    ]
    return np.stack([corpus[start : start + args.context + 1] for start in starts]).astype(np.int32)


def save(trainer: Trainer, tier: Path, step: int, *, shared: bool) -> None:
    """Every rank writes its shard. Shared tier: rank 0 commits for all. Local tier: each commits its own."""
    directory = tier / f"step-{step}"
    if not shared:
        directory /= f"rank-{trainer.rank}"
    directory.mkdir(parents=True, exist_ok=True)
    entry = write_durably(directory / f"shard-{trainer.rank}.f32", trainer.shard().tobytes())
    if not shared:
        commit(directory, step, [entry], trainer.rank)
        return
    row = np.frombuffer(json.dumps(entry).encode().ljust(ENTRY_BYTES), np.uint8)
    entries = [json.loads(other.tobytes()) for other in trainer.gather(row)]
    if trainer.rank == 0:
        commit(directory, step, entries)


def load(trainer: Trainer, checkpoint: Path) -> None:
    """From the shared tier read every shard; from the local tier read our own and exchange them."""
    full = trainer.state.shape
    widths = [len(part) for part in np.array_split(np.empty(full[1]), trainer.world)]

    def read(directory: Path, rank: int) -> np.ndarray:
        data = np.frombuffer((directory / f"shard-{rank}.f32").read_bytes(), np.float32)
        return data.reshape(full[0], widths[rank])

    own = checkpoint / f"rank-{trainer.rank}"
    if own.is_dir():
        padded = np.zeros((full[0], max(widths)), np.float32)
        padded[:, : widths[trainer.rank]] = read(own, trainer.rank)
        shards = [row[:, :width] for row, width in zip(trainer.gather(padded), widths, strict=True)]
    else:
        shards = [read(checkpoint, rank) for rank in range(trainer.world)]
    trainer.restore(np.concatenate(shards, axis=1))


def join_gang(environ: Mapping[str, str], patience: float = 120.0) -> None:
    """Meets the other processes within ``patience`` seconds; without a coordinator this process is all there is."""
    coordinator = environ.get("JAX_COORDINATOR_ADDRESS", "")
    if not coordinator:
        return
    rank = int(environ["JAX_PROCESS_ID"])
    jax.distributed.initialize(
        coordinator,
        int(environ["JAX_NUM_PROCESSES"]),
        rank,
        # Lockstep has said it all; JAX would look for a Kubernetes job of its own kind.
        cluster_detection_method="deactivate",
        coordinator_bind_address=coordinator if rank == 0 else None,
        initialization_timeout=int(patience),
        heartbeat_timeout_seconds=30,  # sent twice in that time: a silent peer is missed after 15 s at the earliest
        shutdown_timeout_seconds=60,
    )


def leave_gang() -> None:
    """Together with the others."""
    if jax.process_count() > 1:
        jax.distributed.shutdown()


def open_for_append(path: str | Path) -> TextIO | None:
    """Line-buffered; None when there is no such place."""
    return open(path, "a", buffering=1, encoding="utf-8") if path else None


def tiers(environ: Mapping[str, str]) -> Iterator[tuple[Path, bool]]:
    """The directories of this attempt, and whether every rank sees the same one."""
    for variable, shared in (("LOCKSTEP_LOCAL_CHECKPOINT_DIR", False), ("LOCKSTEP_CHECKPOINT_DIR", True)):
        if environ.get(variable):
            yield Path(environ[variable]), shared


def train(args: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """From the resume point, if there is one, to the last step."""
    trainer = Trainer(args)
    corpus = np.frombuffer(args.corpus.read_bytes(), np.uint8)
    resume, done = environ.get("LOCKSTEP_RESUME_PATH", ""), 0
    if resume:
        load(trainer, Path(resume))
        done = int(environ["LOCKSTEP_RESUME_STEP"])
    places = list(tiers(environ))
    shared_places = [place for place, shared in places if shared]
    lineage = open_for_append(shared_places[0] / f"lineage-rank{trainer.rank}.jsonl" if shared_places else "")
    progress = open_for_append(environ.get("LOCKSTEP_PROGRESS_FILE", ""))
    if trainer.rank == 0:
        begin = f"resumes after step {done} from {resume}" if resume else "starts at step 0"
        size = trainer.state.shape[1]
        print(f"{trainer.world} ranks, {size} parameters, {args.steps} steps: {begin}", flush=True)

    for step in range(done + 1, args.steps + 1):
        tokens = batch_of(corpus, args, step, trainer.rank)
        loss = trainer.advance(step, tokens)
        line = {"step": step, "batch_hash": hashlib.sha256(tokens.tobytes()).hexdigest()[:16], "loss": repr(loss)}
        if lineage:
            lineage.write(json.dumps(line) + "\n")
        if progress:
            line |= {"loss": f"{loss:.4f}", "total_steps": args.steps, "time": time.time()}
            progress.write(json.dumps(line) + "\n")
        if trainer.rank == 0 and (step % args.log_every == 0 or step == args.steps):
            print(f"step {step}/{args.steps} loss {loss:.4f}", flush=True)
        if step % args.save_every == 0 or step == args.steps:
            for place, shared in places:
                save(trainer, place, step, shared=shared)
        time.sleep(args.step_delay)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Settings; all of them but the delay and the intervals change what is computed."""
    parser = argparse.ArgumentParser(description="Trains a small byte-level language model.")
    parser.add_argument("--steps", type=int, default=300, help="optimizer steps in all")
    parser.add_argument("--save-every", type=int, default=25, help="steps between checkpoints")
    parser.add_argument("--log-every", type=int, default=10, help="steps between lines of output")
    parser.add_argument("--step-delay", type=float, default=0.0, help="seconds to pause after each step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8, help="sequences per rank and step")
    parser.add_argument("--context", type=int, default=64, help="bytes a prediction can look back")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="ASCII text to learn")
    return parser.parse_args(arguments)


def main() -> None:
    """Joins the gang, trains, and leaves together with the others."""
    args = parse(sys.argv[1:])
    try:
        join_gang(os.environ)
        train(args, os.environ)
    except Exception:
        # An ordinary exit would wait for all to leave together, and one of them may be dead.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    leave_gang()


if __name__ == "__main__":
    main()
