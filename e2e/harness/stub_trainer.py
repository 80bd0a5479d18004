"""Training without the mathematics: a gang of processes that agree in every step, save, and resume exactly.

Standard library only, so that it starts at once. What a framework does is there in small: rank 0 listens at the
master address, no rank takes a step without all others, a peer that is gone ends the others, and a checkpoint
holds all that the next step depends on. The state after a step is a hash of the state before and of all ranks'
batches: one step skipped, repeated or taken from the wrong place changes every later line of the lineage.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import signal
import socket
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

Line = dict[str, Any]
BEGINNING = "0" * 64
CONNECT_SECONDS = 20.0
SHARD_BYTES = 1 << 16


class LostPeerError(Exception):
    """A rank is gone, or says nothing."""


def batch(step: int, rank: int) -> str:
    """What a rank reads for a step."""
    return hashlib.sha256(f"{step}/{rank}".encode()).hexdigest()


def advanced(state: str, batches: Sequence[str]) -> str:
    """The state after one more step."""
    return hashlib.sha256("".join([state, *batches]).encode()).hexdigest()


def lineage_line(step: int, rank: int, state: str) -> Line:
    """What a rank records of a step, as the demo's trainer does."""
    return {"step": step, "batch_hash": batch(step, rank)[:16], "loss": repr(int(state[:12], 16) / 2**48)}


def undisturbed(steps: int, world: int, rank: int) -> Iterator[Line]:
    """The lineage of a run to which nothing happens."""
    state = BEGINNING
    for step in range(1, steps + 1):
        state = advanced(state, [batch(step, other) for other in range(world)])
        yield lineage_line(step, rank, state)


class Gang:
    """Every exchange waits for all ranks; rank 0 is in the middle. Messages are lines of JSON."""

    def __init__(self, rank: int, world: int, address: tuple[str, int], patience: float) -> None:
        self.rank, self._world = rank, world
        self._links: dict[int, TextIO] = {}
        if rank == 0:
            server = socket.create_server(address)
            server.settimeout(CONNECT_SECONDS)
            while len(self._links) < world - 1:
                connection, _ = server.accept()
                connection.settimeout(patience)
                link = connection.makefile("rw", buffering=1)
                self._links[int(link.readline())] = link
        else:
            connection = self._connect(address)
            connection.settimeout(patience)
            self._links[0] = connection.makefile("rw", buffering=1)
            print(rank, file=self._links[0])

    def exchange(self, message: Any) -> list[Any]:
        """The messages of all ranks, in their order. Raises LostPeerError."""
        try:
            if self.rank:
                print(json.dumps(message), file=self._links[0])
                return list(self._heard(0))
            everyone = [message, *(self._heard(rank) for rank in range(1, self._world))]
            for link in self._links.values():
                print(json.dumps(everyone), file=link)
            return everyone
        except OSError as error:
            raise LostPeerError(repr(error)) from error

    def _heard(self, rank: int) -> Any:
        line = self._links[rank].readline()
        if not line:
            raise LostPeerError(f"rank {rank} hung up")
        return json.loads(line)

    @staticmethod
    def _connect(address: tuple[str, int]) -> socket.socket:
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                return socket.create_connection(address, timeout=2.0)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def write_durably(path: Path, data: bytes) -> Line:
    """The file whole or not at all; its entry for the manifest."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    return {"name": path.name, "bytes": len(data), "crc32": f"{zlib.crc32(data):08x}"}


def save(gang: Gang, folder: Path, step: int, state: str, *, any_size: bool = False) -> None:
    """Every rank its shard, then rank 0 the manifest for all. ``any_size``: however many may load it."""
    directory = folder / f"step-{step}"
    directory.mkdir(exist_ok=True)
    entries = gang.exchange(write_durably(directory / f"shard-{gang.rank}.bin", shard(state)))
    if gang.rank == 0:
        commit(directory, step, entries, any_size=any_size)


def save_locally(gang: Gang, folder: Path, step: int, state: str) -> None:
    """Every rank its shard and the manifest for that, on its node's own disk."""
    directory = folder / f"step-{step}" / f"rank-{gang.rank}"
    directory.mkdir(parents=True, exist_ok=True)
    commit(directory, step, [write_durably(directory / f"shard-{gang.rank}.bin", shard(state))])
    gang.exchange("saved")  # nobody goes on before all have


def commit(directory: Path, step: int, entries: list[Any], *, any_size: bool = False) -> None:
    """The manifest of these files."""
    manifest = {
        "format": "lockstep/1",
        "runUID": os.environ["LOCKSTEP_RUN_UID"],
        "attempt": int(os.environ["LOCKSTEP_ATTEMPT"]),
        "step": step,
        "world": 0 if any_size else int(os.environ["LOCKSTEP_NNODES"]),
        "files": entries,
    }
    write_durably(directory / "manifest.json", json.dumps(manifest).encode())


def shard(state: str) -> bytes:
    """The state, and more bytes so that a shard has some size."""
    return state.encode().ljust(SHARD_BYTES, b".")


def load(directory: Path, rank: int) -> str:
    """The state that `shard` was made of."""
    own = directory / f"rank-{rank}"
    directory = own if own.is_dir() else directory
    return (directory / f"shard-{rank}.bin").read_bytes()[: len(BEGINNING)].decode()


def save_what_one_can(directory: Path, rank: int, state: str) -> None:
    """As trainers do that lost their peers: one shard, and nothing that commits it."""
    if not (directory / "manifest.json").exists():
        directory.mkdir(parents=True, exist_ok=True)
        write_durably(directory / f"shard-{rank}.bin", shard(state))


def write_on(folder: Path, rank: int, step: int, state: str, seconds: float, asked_to_end: list[int]) -> None:
    """As a rank that nobody told of the loss of its peers: one shard of a step that is never committed, again and again
    until it is told to end, but no longer than ``seconds``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not asked_to_end:
        save_what_one_can(folder / f"step-{step}", rank, state)
        time.sleep(0.5)


def open_for_append(path: Path) -> TextIO:
    """Line-buffered, until the process ends."""
    return path.open("a", buffering=1)


def train(args: argparse.Namespace) -> int:
    """From the resume point to the last step; the exit code."""
    environ = os.environ
    rank, world = int(environ["LOCKSTEP_NODE_RANK"]), int(environ["LOCKSTEP_NNODES"])
    resume, folder = environ["LOCKSTEP_RESUME_PATH"], Path(environ["LOCKSTEP_CHECKPOINT_DIR"])
    asked_to_end: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked_to_end.append(number))
    asked_to_save: list[int] = []
    if args.save_on:
        signal.signal(getattr(signal, args.save_on), lambda number, frame: asked_to_save.append(number))
    done = int(environ["LOCKSTEP_RESUME_STEP"] or 0)
    state = load(Path(resume), 0 if args.any_size else rank) if resume else BEGINNING
    print(f"trainer: attempt={environ['LOCKSTEP_ATTEMPT']} rank={rank} begins after step {done}", flush=True)
    print("trainer: this is stderr", file=sys.stderr, flush=True)
    address = (environ["LOCKSTEP_MASTER_ADDR"], int(environ["LOCKSTEP_MASTER_PORT"]))
    gang = Gang(rank, world, address, args.patience)
    steering = importlib.import_module("lockstep_training") if args.listen else None
    lineage = open_for_append(folder / f"lineage-rank{rank}.jsonl")
    progress = open_for_append(Path(environ["LOCKSTEP_PROGRESS_FILE"]))
    delay = args.step_delay if environ["LOCKSTEP_ATTEMPT"] == "1" or args.later_delay is None else args.later_delay
    local = Path(environ["LOCKSTEP_LOCAL_CHECKPOINT_DIR"])
    held_at = args.hold_after if environ["LOCKSTEP_ATTEMPT"] == "1" else None
    if int(environ["LOCKSTEP_ATTEMPT"]) <= args.hold_attempts:
        held_at = done + args.hold_steps
    failing, failing_at, last_words = (args.fail or "-1:0:").split(":", 2)
    is_first = environ["LOCKSTEP_ATTEMPT"] == "1"
    if not (is_first or args.fail_again) or rank != int(failing):
        failing_at = 0
    try:
        for step in range(done + 1, args.steps + 1):
            if step == int(failing_at):
                print(last_words, file=sys.stderr, flush=True)
                return 1
            while True:
                wishes = {"end": bool(asked_to_end), "save": bool(asked_to_save)}
                told = gang.exchange({"batch": batch(step, rank), "state": state, **wishes})
                if done != held_at or any(other["end"] for other in told):
                    break
                time.sleep(0.05)
            if any(other["state"] != state for other in told):
                print("trainer: the ranks differ", file=sys.stderr, flush=True)
                return 3
            if any(other["end"] for other in told):
                print(f"trainer: told to end, saves step {done}", file=sys.stderr, flush=True)
                save(gang, folder, done, state, any_size=args.any_size)
                return 0
            state, done = advanced(state, [other["batch"] for other in told]), step
            line = lineage_line(step, rank, state)
            print(json.dumps(line), file=lineage)
            shown = line | ({"loss": 1e6 + step} if is_first and args.spike_at and step >= args.spike_at else {})
            print(json.dumps(shown | {"total_steps": args.steps, "time": time.time()}), file=progress)
            if args.save_locally_every and step % args.save_locally_every == 0:
                save_locally(gang, local, step, state)
            asked = steering is not None and steering.should_checkpoint(step)
            if any(other["save"] for other in told):  # as trainers do that agree on a signal among themselves
                asked_to_save.clear()
                asked = True
            if asked or step in args.save_at or step % args.save_every == 0 or step == args.steps:
                save(gang, folder, step, state, any_size=args.any_size)
                if steering is not None and step < args.steps and steering.should_stop():
                    print(f"trainer: stops after step {step}, as it was told to", flush=True)
                    return 0
            time.sleep(delay)
    except LostPeerError as error:
        print(f"ConnectionError: {error}", file=sys.stderr, flush=True)  # read as a complaint about a peer
        time.sleep(args.notice_after)
        place = local / f"step-{done}" / f"rank-{rank}" if args.save_locally_every else folder / f"step-{done}"
        save_what_one_can(place, rank, state)
        write_on(folder, rank, done + 1, state, args.write_on, asked_to_end)
        return 1
    print("trainer: done", flush=True)
    return 0


def main() -> int:
    """Exit code: 0 at the last step or told to end, 1 without its peers, 3 when the ranks disagree."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--save-at", type=int, action="append", default=[], help="a further step to save at")
    parser.add_argument("--save-locally-every", type=int, default=0, help="to the node's own disk; 0: never")
    parser.add_argument("--step-delay", type=float, default=0.1)
    parser.add_argument("--later-delay", type=float, help="the same for attempts after the first")
    parser.add_argument("--patience", type=float, default=4.0, help="seconds to wait for a peer")
    parser.add_argument(
        "--hold-after", type=int, help="the first attempt goes on talking after that step, and no further"
    )
    parser.add_argument("--hold-attempts", type=int, default=0, help="so many attempts do so …")
    parser.add_argument("--hold-steps", type=int, default=0, help="… after so many steps of their own")
    parser.add_argument("--notice-after", type=float, default=0.0, help="seconds until a rank ends that lost a peer")
    parser.add_argument("--write-on", type=float, default=0.0, help="seconds for which it then goes on writing")
    parser.add_argument("--fail", help="RANK:STEP:TEXT: in the first attempt that rank says so and ends")
    parser.add_argument("--fail-again", action="store_true", help="and in every other attempt")
    parser.add_argument("--any-size", action="store_true", help="checkpoints may be loaded by any number of ranks")
    parser.add_argument("--save-on", help="save on this signal, by its name, once any rank got it")
    parser.add_argument("--spike-at", type=int, help="from this step on the first attempt tells losses of a million")
    parser.add_argument("--listen", action="store_true", help="save and stop when Lockstep asks for it")
    return train(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
