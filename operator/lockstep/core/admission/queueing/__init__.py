"""The rules of queues: order, fair share, holds, dependencies."""
