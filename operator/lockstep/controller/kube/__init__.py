"""The API server: client, informers, work queue, leader election, events."""
