"""Lockstep on a genuine kind cluster: what only containers, kubelets and machines that go away can show."""
