"""History that outlives the objects: JSON lines in the log, and in files where the installation wants them.

Decisions never wait for it: lines go through a bounded queue to a thread that writes. What does not fit, there or on
the disk, is counted and dropped.
"""

import json
import logging
import queue
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from typing import Any

from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.runtime.clock import Clock
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.run.history_records import records, records_of_deleted

log = logging.getLogger("lockstep.history")
QUEUED = 10_000
FILES_KEPT = 5


class History:
    """Writes records of status changes. ``path`` empty: to the log alone."""

    def __init__(self, path: str, max_bytes: int, clock: Clock, dropped: Callable[[], None]) -> None:
        """Raises OSError when the file cannot be opened."""
        self._clock = clock
        self._file: QueueHandler | None = None
        self._listener: QueueListener | None = None
        if path:
            target = _Lines(path, max_bytes, dropped)
            waiting: queue.Queue[logging.LogRecord] = queue.Queue(QUEUED)
            self._file = _Bounded(waiting, dropped)
            self._listener = QueueListener(waiting, target)
            self._listener.start()

    def status_written(self, run: RunView, after: TrainingRunStatus) -> None:
        """``after`` has taken the place of the run's status."""
        self._write(run, records(run, after, self._clock.now()))

    def run_gone(self, run: RunView, tunables: Tunables) -> None:
        """The run was deleted, and this was the last of it."""
        self._write(run, records_of_deleted(run, tunables, self._clock.now()))

    def _write(self, run: RunView, made: Iterable[dict[str, Any]]) -> None:
        for record in made:
            log.info("%s %s ended", record["kind"], run.key, extra={"history": record})
            if self._file is not None:
                line = json.dumps(record, separators=(",", ":"))
                self._file.handle(logging.makeLogRecord({"name": log.name, "levelno": logging.INFO, "msg": line}))

    def close(self) -> None:
        """Write what is queued; may wait for the disk. The last call."""
        if self._listener is not None:
            with suppress(queue.Full):  # a disk that took nothing so far will not take the rest
                self._listener.stop()
            for handler in self._listener.handlers:
                with suppress(OSError):  # what a full disk did not take is counted already
                    handler.close()


class _Lines(RotatingFileHandler):
    def __init__(self, path: str, max_bytes: int, dropped: Callable[[], None]) -> None:
        super().__init__(path, maxBytes=max_bytes, backupCount=FILES_KEPT, encoding="utf-8")
        self._dropped = dropped
        self._fails = False

    def flush(self) -> None:
        """After every line."""
        super().flush()
        self._fails = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """One line was not written, as on a full disk. It is logged once for all in a row."""
        self._dropped()
        if not self._fails:
            self._fails = True
            log.warning("history cannot be written to %s: %s", self.baseFilename, sys.exc_info()[1])


class _Bounded(QueueHandler):
    def __init__(self, waiting: queue.Queue[logging.LogRecord], dropped: Callable[[], None]) -> None:
        super().__init__(waiting)
        self._dropped = dropped

    def enqueue(self, record: logging.LogRecord) -> None:
        """A full disk or a dead file server must not hold up anything else."""
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self._dropped()
