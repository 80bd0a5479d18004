"""What a rank of the recovery benchmark runs: a trainer without the mathematics, from the standard library alone.

Rank 0 saves once, right after it began; then every rank takes a step a second until it is ended. A rank whose peer
died goes on waiting, as one does in a collective: it ends when it is told to, and not before.
"""

from __future__ import annotations

import os
import time

STATE = b"state" * 4096


def main() -> None:
    environ = os.environ
    step = int(environ["LOCKSTEP_RESUME_STEP"] or 0) + 1
    if environ["LOCKSTEP_NODE_RANK"] == "0":
        save(step)
    with open(environ["LOCKSTEP_PROGRESS_FILE"], "a", buffering=1) as progress:
        while True:
            print(f'{{"step": {step}}}', file=progress)
            time.sleep(1.0)
            step += 1


def save(step: int) -> None:
    """One shard, and the manifest that commits it."""
    import json
    import zlib

    directory = f"{os.environ['LOCKSTEP_CHECKPOINT_DIR']}/step-{step}"
    os.mkdir(directory)
    manifest = {
        "format": "lockstep/1",
        "runUID": os.environ["LOCKSTEP_RUN_UID"],
        "attempt": int(os.environ["LOCKSTEP_ATTEMPT"]),
        "step": step,
        "world": int(os.environ["LOCKSTEP_NNODES"]),
        "files": [{"name": "state.bin", "bytes": len(STATE), "crc32": f"{zlib.crc32(STATE):08x}"}],
    }
    for name, data in (("state.bin", STATE), ("manifest.json", json.dumps(manifest).encode())):
        with open(f"{directory}/.{name}", "wb") as file:
            file.write(data)
        os.rename(f"{directory}/.{name}", f"{directory}/{name}")


if __name__ == "__main__":
    main()
