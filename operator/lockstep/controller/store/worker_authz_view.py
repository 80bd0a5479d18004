"""What the authorization of workers asks of the store."""

from lockstep.controller.store.store import Store
from lockstep.core.model.snapshot import PodView


class WorkerAuthzView:
    """The gangs as the store has them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def pod_by_uid(self, uid: str) -> PodView | None:
        """The gang pod with this UID."""
        pod = self._store.gang_pods.get(uid) or self._store.other_pods.get(uid)  # whose labels somebody took off
        return pod if isinstance(pod, PodView) else None

    def run_namespace(self, run_uid: str) -> str | None:
        """The namespace of a run that exists."""
        run = self._store.runs.get(run_uid)
        return run.namespace if run is not None else None

    def incarnation(self, run_uid: str, slot: int) -> int | None:
        """The incarnation of the slot that the run's assignment has now."""
        run = self._store.runs.get(run_uid)
        if run is None or slot >= len(run.status.assignment.incarnations):
            return None
        return run.status.assignment.incarnations[slot]
