"""From flags and files to what is created: manifests, schedule, refusals, `--test-only`."""
