"""Lockstep's worker: PID 1 of the training container. Standard library only, Python >= 3.8.

It is shipped to the pod as one file, a zip application of this package (controller/worker_archive.py), and imported
as a package by the operator's own programs.

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

Modules, each importing only those above it
  errors, output, settings    words, streams, what the pod says
  formats/, pointers          the verdict on one checkpoint directory; what makes a loader find it
  tiers, launch, inventory    which checkpoints there are; what an attempt gives to the child
  processes                   what runs here
  child, scratch, control     one attempt's process, the record that it was started, and how it is steered
  timing, progress, loglines  how far it is, and how long that takes
  signs, stacks, training     why it failed, where it hangs; one attempt as a whole
  preflight, warmup           can this node train, can it reach the others?
  inbox, limits, secrets, link  what arrives and from whom; how much may be said, and what not
  barrier, agent              what is done about it

Two modules run elsewhere: ``lockstep_training`` is what programs import, ``pattern_matching`` a process of its own.

The contract with the training code (environment, exit codes, files) is docs/worker.md.
"""
