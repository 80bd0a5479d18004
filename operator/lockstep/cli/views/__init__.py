"""What verbs that only read print: lists, pages, logs, bundles."""
