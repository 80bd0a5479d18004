"""The rendezvous of one attempt, as a launcher needs it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """One node's part: its rank among ``world`` nodes, rank 0's address and port, GPUs of every node."""

    rank: int
    world: int
    address: str
    port: int
    gpus: int
