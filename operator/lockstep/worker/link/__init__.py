"""The worker's link to the operator, and its inbox."""
