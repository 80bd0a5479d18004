"""The tests that run on any cluster: processes are held to what containers of a real kubelet are held to."""

from __future__ import annotations

import pytest

from containers.test_anywhere import (
    test_a_cancelled_run_hears_sigterm_and_ends_for_good,
    test_a_drained_node_alone_is_left_and_the_others_keep_their_pods,
    test_a_gang_that_hangs_leaves_its_stacks_and_starts_again_in_its_pods,
    test_a_gang_without_workers_trains_to_its_end,
    test_a_run_whose_time_is_up_saves_and_ends,
    test_a_spare_takes_the_place_of_a_killed_node_and_no_pod_is_made_for_it,
    test_a_suspended_run_saves_at_one_step_on_all_ranks_and_resumes_from_it,
    test_torn_checkpoints_newer_than_the_valid_one_are_passed_over_with_the_reason,
)

__all__ = [
    "test_a_cancelled_run_hears_sigterm_and_ends_for_good",
    "test_a_drained_node_alone_is_left_and_the_others_keep_their_pods",
    "test_a_gang_that_hangs_leaves_its_stacks_and_starts_again_in_its_pods",
    "test_a_gang_without_workers_trains_to_its_end",
    "test_a_run_whose_time_is_up_saves_and_ends",
    "test_a_spare_takes_the_place_of_a_killed_node_and_no_pod_is_made_for_it",
    "test_a_suspended_run_saves_at_one_step_on_all_ranks_and_resumes_from_it",
    "test_torn_checkpoints_newer_than_the_valid_one_are_passed_over_with_the_reason",
]
pytestmark = pytest.mark.nodes
