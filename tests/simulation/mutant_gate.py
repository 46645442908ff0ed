"""The gate of `make soak`: each mutant is noticed by the test, or by the seed of the simulation, that is named here.

python -m tests.simulation.mutant_gate [NAME]
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.mutants import MUTANTS, Mutant, mutated, output_of

_TESTS = {
    "frontier/budget/test_budget.py": {
        "late-spend": "test_a_report_that_arrives_after_a_later_one_changes_nothing",
        "hanging-nodes-are-sure": "test_a_time_in_which_the_counters_could_not_be_read_does_not_make_them_sure",
        "permits-before-the-count": "test_a_limit_takes_effect_when_all_replicas_know_it",
        "lost-pages-are-free": "test_pages_that_the_counters_lack_after_a_restart_count_if_a_limit_is_set_then",
        "holder-loses-permits": "test_whatever_happens_there_are_exactly_as_many_pages",
        "lapses-with-lease": "test_a_limit_that_is_far_away_refuses_nobody_and_costs_a_call_a_period",
        "permits-end-before-a-takeover": "test_domains_stay_leased_to_a_dead_replica_until_others_own_its_shards",
    },
    "frontier/packing/test_packing.py": {
        "known-pages-are-packed": "test_known_pages_that_are_due_do_not_make_a_queue_long_and_stay_queued",
        "unpacks-twice": "TestRaces",
        "packs-what-has-changed": "TestRaces",
        "packed-is-empty": "TestLease",
    },
    "frontier/restarts/test_restarts.py": {
        "repeated-lease-grants-anew": "TestALeaseCallWithoutAReply",
        "late-lease-call-is-answered": "TestALeaseCallWithoutAReply",
        "empty-shard-is-empty": "TestAShardWithoutData",
        "push-into-lost-shard": "TestAShardWithoutData",
        "lost-shard-is-over": "TestAShardWithoutData",
        "no-grace": "TestALostTail",
        "lost-leases-forgotten": "TestALostTail",
        "late-backoff": "test_a_late_settlement_leaves_the_backoff_and_delay_of_a_later_holder",
    },
    "frontier/test_clock.py": {
        "clock-ahead": "test_the_server_lies_between_two_bounds_however_lopsided_the_way",
        "steps-are-followed": "test_a_step_changes_neither_time_nor_views",
        "each-corrects-a-step": "test_a_correction_that_arrives_late_changes_nothing",
        "newcomers-trust-the-server": "test_a_replica_that_joins_before_anybody_notices_the_step_waits_for_the_time",
        "answers-are-not-awaited": "test_a_replica_that_joins_before_anybody_notices_the_step_waits_for_the_time",
    },
    "frontier/test_counters.py": {
        "one-reading": "test_a_page_that_is_settled_during_a_reading_does_not_hide_its_links",
    },
    "frontier/test_peers.py": {
        "owners-forgotten": "test_only_the_first_to_see_a_change_writes_the_table",
        "late-owners": "test_a_late_table_of_a_closed_epoch_is_refused",
        "late-claims": "test_a_late_claim_counts_for_the_open_epoch",
        "rosters-of-old-epochs": "test_the_claims_of_an_epoch_are_no_roster_of_a_later_one",
    },
    "frontier/test_queue.py": {
        "taken-back-twice-is-open": "test_a_seed_whose_lease_expires_and_that_is_queued_again_counts_once",
        "no-fence": "test_an_older_epoch_is_fenced_off",
        "no-rest-after-expiry": "test_an_expired_lease_is_taken_back_and_waits_the_delay",
        "push-makes-leased-due": "test_a_leased_domain_is_not_leased_again",
        "lost-holder-keeps-token": "test_a_lost_holder_cannot_settle_once_its_lease_was_taken_back",
        "token-without-clock": "test_a_token_that_redis_forgot_is_never_used_again",
    },
    "frontier/test_repair.py": {
        "repair-forgets-later-visits": "test_a_later_visit_counts",
    },
    "frontier/test_reshard.py": {
        "late-report": "test_a_whole_second_command_waits_until_the_first_has_been_silent_for_ten_seconds",
        "undone-begins-again": "test_a_begin_that_arrives_after_the_reshard_was_undone_begins_nothing",
        "late-freeze": "test_a_command_that_was_suspended_until_it_was_undone_freezes_nothing",
        "late-thaw": "test_calls_of_an_earlier_reshard_that_arrive_late_change_nothing",
        "late-begin": "test_calls_of_an_earlier_reshard_that_arrive_late_change_nothing",
        "late-cancel": "test_calls_of_an_earlier_reshard_that_arrive_late_change_nothing",
        "late-switch": "test_calls_of_an_earlier_reshard_that_arrive_late_change_nothing",
        "late-end": "test_calls_of_an_earlier_reshard_that_arrive_late_change_nothing",
        "repaired-shard-is-frozen": "test_a_shard_that_is_repaired_after_a_reshard_was_undone_is_not_frozen_for_it",
        "copies-share-keys": "test_calls_of_an_earlier_reshard_that_arrive_late_change_nothing",
        "kept-links-count-twice": "test_a_link_that_two_shards_keep_is_kept_once_by_the_shard_that_follows_both",
        "seen-is-not-compared": "test_a_copy_that_lacks_seen_urls_is_not_switched_to",
        "unsynced-copy": "test_a_copy_is_synced_before_the_switch",
        "removes-a-new-layout": "test_a_command_whose_claim_was_lost_and_given_to_another_removes_nothing",
    },
    "frontier/test_reshard_cluster.py": {
        "copies-if-one-shard-can": "test_a_shard_that_has_the_slot_of_its_new_one_by_chance_is_copied_like_the_others",
    },
    "frontier/test_settle.py": {
        "lost-urls-forgotten": "test_also_after_others_have_settled_the_rest",
        "revoked-lease-keeps-token": "test_a_settle_that_comes_after_it_changes_nothing",
        "settle-without-token": "test_a_stale_token_changes_nothing",
        "release-without-token": "test_a_stale_token_changes_nothing",
        "settles-twice": "test_a_doubled_call_counts_once",
        "late-call-shortens-lease": "test_a_call_that_arrives_after_a_later_one_shortens_nothing",
        "late-call-shortens-rest": "test_a_call_that_arrives_after_a_later_one_shortens_nothing",
    },
    "frontier/test_shards.py": {
        "outbox-not-open": "test_the_crawl_has_not_ended_while_links_are_kept",
    },
    "frontier/test_visits.py": {
        "moved-is-queued-twice": "test_where_a_page_has_moved_is_visited_although_it_was_seen",
        "moved-is-visited-early": "test_a_known_page_where_another_has_moved_is_visited_when_it_is_due",
    },
    "politeness/test_backoff.py": {
        "well-for-ever": "test_rests_grow_again_after_a_failure_that_was_forgiven",
    },
    "scope/test_scope.py": {
        "dropped-is-remembered": "test_a_link_that_may_have_been_dropped_stands_for_itself_alone",
        "moved-is-swallowed": "test_where_a_page_has_moved_is_asked_for_each_time",
    },
    "simulation/test_recrawl.py": {
        "visits-before-they-are-due": "",
        "pages-are-lost": "",
        "unchanged-pages-are-lost": "",
        "equal-intervals": "",
    },
    "sinks/test_recovery.py": {
        "replaced-places": "test_what_a_rewrite_has_replaced_is_in_doubt_no_more",
        "records-before-journal": "test_the_journal_is_written_before_what_it_describes",
    },
    "worker/test_commit.py": {
        "settle-before-push": "test_links_are_pushed_before_the_page_is_durable_and_it_is_settled_last",
        "settle-before-sink": "test_links_are_pushed_before_the_page_is_durable_and_it_is_settled_last",
        "stale-is-settled": "test_nothing_is_settled_after_the_lease_ended",
        "settles-after-lease": "test_nothing_is_settled_after_the_lease_ended",
        "renews-after-lease": "test_a_lease_that_has_ended_is_not_renewed",
        "one-push": "test_links_that_redis_forgot_in_a_restart_are_pushed_again_before_their_page_is_settled",
        "no-repeated-writes": "test_a_lease_is_not_returned_before_the_writes_under_it_are_repeated",
    },
    "worker/test_lease_life.py": {
        "lease-end-too-late": "test_a_lease_that_is_lost_during_a_request_goes_to_another_replica",
    },
    "worker/test_lease_manager.py": {
        "finished-lease-is-renewed": "test_a_lease_that_redis_kept_though_its_urls_are_settled_is_given_back",
    },
    "worker/test_leases.py": {
        "pages-outlive-permits": "test_a_lease_ends_with_the_permits_of_its_pages",
    },
    "worker/test_outbox.py": {
        "full-outbox-settles": "test_a_page_whose_links_no_outbox_takes_is_not_settled",
        "full-outbox-repeats": "test_a_settlement_is_repeated_after_its_links_are_in_an_outbox",
        "repeats-without-outbox": "test_a_settlement_is_repeated_after_its_links_are_in_an_outbox",
    },
    "worker/test_request.py": {
        "lease-end-ignored": "test_nothing_leaves_when_the_lease_has_ended",
    },
    "worker/test_robots.py": {
        "delay-without-robots": "test_the_delay_that_a_robots_txt_asks_for_begins_with_the_request_for_it",
    },
}
"""Test file -> mutant -> the test or its class, or "" for all of the file."""

_SEEDS = {
    "stale-is-unsettled": "--seed 8",
    "outbox-forgets": "--seed 8 --nodes 3",
    "strangers-are-new": "--first 0 --runs 5",
    "idle-is-over": "--first 0 --runs 5",
    "epoch-is-opened-again": "--seed 0",
    "frozen-keeps-leases": "--first 0 --runs 12 --reshards 3",
}
"""Mutant -> the options of the simulation."""

NOTICED_BY = _SEEDS | {
    mutant: f"tests/{file}::{test}" for file, tests in _TESTS.items() for mutant, test in tests.items()
}

QUICK = ("no-fence", "settles-twice", "late-call-shortens-lease", "token-without-clock", "dropped-is-remembered")
"""Mutants that are noticed within a second or two, for `make test`."""


LONGEST_S = 120.0
"""For a test that notices a mutant. It normally takes some seconds."""


def is_noticed(mutant: Mutant) -> bool:
    """Whether what is named for `mutant` fails in a copy of the program with it."""
    by = NOTICED_BY[mutant.name]
    with mutated(mutant) as copy:
        if by.startswith("--"):
            return "BREACH " in output_of(copy, "-W", "ignore", "-m", "tests.simulation", *by.split())
        path, _, name = by.partition("::")
        options = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", name)
        # A test that cannot be found or imported would be an error, and no failure.
        return "\nFAILED " in output_of(copy, "-m", "pytest", *options, path, limit_s=LONGEST_S)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutant_gate", description=__doc__)
    parser.add_argument("name", nargs="?", default="", help="a part of the names of the mutants to try")
    name = parser.parse_args().name
    survivors = 0
    tried = [mutant for mutant in MUTANTS if name in mutant.name]
    for mutant in tried:
        started = time.monotonic()
        noticed = is_noticed(mutant)
        survivors += not noticed
        result = "noticed" if noticed else "NOT NOTICED"
        print(
            f"{mutant.name:28} {result:12} {time.monotonic() - started:4.0f} s  {NOTICED_BY[mutant.name]}", flush=True
        )
    print(f"{survivors} of {len(tried)} mutants not noticed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
