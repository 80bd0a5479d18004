"""Lockstep's worker: PID 1 of the training container. Standard library only, Python >= 3.8.

It is shipped to the pod as one file, a zip application of this package (controller/workers/worker_archive.py), and
imported as a package by the operator's own programs.

Theory of operation
  The main thread owns the state machine (agent.py) and never blocks for long: it makes the calls that others put
  into its inbox (replies of the operator, signals, results of slow work) and then brings what is nearer to the
  newest desired state. Replies are levels, not commands: hearing one twice, late or never does no harm.
  Two threads talk to the operator (link.py). One holds a long poll open, which is the heartbeat and brings a new
  desired state at once; the other sends a fresh report the moment something changed here. Disks are slow or stuck
  when it matters, so everything that touches checkpoints runs in threads of its own.

Two rules
  An attempt is never run twice, and never before the operator released this worker from that attempt's barrier.
  A worker stands at a barrier only after every process of earlier attempts in its PID namespace is dead.

Rooms, each importing only those above it
  errors, output, settings, limits, secrets    what the pod says, what may be said and what not
  checkpoints/    which checkpoints there are, the verdict on one, what makes a loader find it
  child/          one attempt's process: how it is started and steered, how far it is, why it failed
  steps/          processes that the program starts on other nodes; server and clients are processes of their own
  node/           can this node train, can it reach the others? the barrier
  link/           what arrives and from whom
  agent           what is done about it

Two modules run elsewhere: ``lockstep_training`` is what programs import, ``pattern_matching`` a process of its own.

The contract with the training code (environment, exit codes, files) is docs/worker.md.
"""
