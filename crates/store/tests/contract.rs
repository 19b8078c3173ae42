//! The contract of the store: each behaviour below runs once per database backend.
//!
//! A behaviour is a function that takes a fresh [`World`](contract::world::World); its name is the sentence that it verifies. A
//! behaviour that is not listed here is dead code and fails the lint.

#![allow(clippy::unwrap_used, reason = "a behaviour is a test, though the attribute stands on what calls it")]
#![allow(clippy::cloned_ref_to_slice_refs, reason = "what a list of one should hold reads best as a list of one")]

mod contract {
    pub(crate) mod claims;
    pub(crate) mod columns;
    pub(crate) mod conflicts;
    pub(crate) mod counts;
    pub(crate) mod crash;
    pub(crate) mod dumps;
    pub(crate) mod encryption;
    pub(crate) mod enrollment;
    pub(crate) mod events;
    pub(crate) mod genuine;
    pub(crate) mod given;
    pub(crate) mod groups;
    pub(crate) mod hints;
    pub(crate) mod history;
    pub(crate) mod keys;
    pub(crate) mod leases;
    pub(crate) mod lists;
    pub(crate) mod membership;
    pub(crate) mod migrations;
    pub(crate) mod names;
    pub(crate) mod remembered;
    pub(crate) mod replicas;
    pub(crate) mod retention;
    pub(crate) mod sealing;
    pub(crate) mod swap;
    pub(crate) mod trail;
    pub(crate) mod unreadable;
    pub(crate) mod versions;
    pub(crate) mod world;
}

macro_rules! behaviours {
    (@on $backend:ident as $module:ident: $($topic:ident { $($name:ident,)+ })+) => {
        mod $module {
            $(mod $topic {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let world = crate::contract::world::World::$backend().await;
                    world.judge(crate::contract::$topic::$name).await;
                })+
            })+
        }
    };
    ($($behaviours:tt)+) => {
        behaviours!(@on sqlite as sqlite: $($behaviours)+);
        behaviours!(@on postgres as postgres: $($behaviours)+);
    };
}

// Behaviours that only a database server shared by several replicas can show.
behaviours!(@on postgres as shared: conflicts {
    a_conflict_is_told_as_busy_and_repeated_until_it_passes,
    a_conflict_that_does_not_pass_is_given_up,
    a_deadlock_with_a_stranger_is_repeated,
    a_writer_that_never_ends_makes_others_busy_and_not_stuck,
} replicas {
    a_connection_cut_in_the_middle_of_a_change_leaves_nothing_and_the_store_recovers,
    a_connection_cut_before_a_commit_does_not_commit,
    readers_whose_connections_were_cut_while_nobody_used_them_read,
    cut_connections_under_load_leave_no_gap_and_no_half,
    other_processes_get_hints_after_the_commit_and_the_writer_gets_each_once,
    a_lost_listener_says_so_and_hears_again,
    a_closed_store_leaves_no_connection,
    the_trail_is_not_truncated,
});

behaviours! {
    claims {
        a_node_is_allocated_once_and_again_after_its_release,
        the_database_itself_refuses_a_second_open_allocation_of_a_node,
        an_allocation_carries_one_member_and_the_refusal_names_the_workload,
        the_database_itself_refuses_a_second_member_on_an_allocation,
        a_workload_has_one_open_operation_and_the_refusal_names_it,
        the_database_itself_refuses_a_second_open_operation_of_a_workload,
        of_many_that_allocate_a_node_at_once_one_succeeds,
        of_many_that_start_an_operation_at_once_one_succeeds,
        members_keep_the_order_of_their_placement,
    }
    columns {
        every_column_of_every_table_comes_back_full_and_null_from_both_databases,
        a_value_of_another_type_than_its_column_is_refused,
        a_database_is_looked_at_without_being_changed,
        a_fill_that_fails_leaves_no_schema_and_one_that_does_not_changes_no_row,
    }
    counts {
        committed_changes_are_counted_and_dropped_ones_only_by_their_statements,
    }
    crash {
        a_change_dropped_before_its_commit_leaves_nothing,
        a_change_cut_off_in_the_middle_of_a_statement_leaves_nothing_and_blocks_nobody,
        a_change_with_a_failed_statement_does_not_commit,
        what_was_committed_is_there_after_opening_again,
        a_reader_sees_one_moment,
        a_reader_of_one_statement_sees_what_is_committed_when_it_reads_and_reads_once,
    }
    enrollment {
        what_a_token_allows_is_returned_with_its_redemption,
        key_is_certified_once_and_the_oldest_of_a_node_are_forgotten,
        a_token_works_once,
        of_two_that_redeem_a_token_at_once_one_succeeds,
        a_token_is_refused_when_it_is_late_foreign_or_unknown,
        a_newer_token_of_the_same_node_ends_the_older,
        a_redeemed_token_is_unused_again_when_its_change_is_dropped,
    }
    events {
        each_stream_counts_from_one_by_itself,
        a_dropped_change_leaves_no_gap,
        many_writers_and_rollbacks_leave_no_gap,
        readers_never_see_a_number_before_a_lower_one,
        events_are_read_behind_a_number_and_in_order,
    }
    genuine {
        a_token_that_somebody_else_wrote_changed_or_moved_is_absent_and_told,
        altered_service_account_is_refused_and_reported,
        a_signing_key_that_somebody_else_wrote_is_not_in_the_set,
        authority_written_or_changed_by_another_is_not_read,
        an_enrollment_that_somebody_else_wrote_or_changed_is_unknown,
        forged_rows_hide_no_genuine_ones_from_a_list,
        without_its_proof_a_record_is_neither_written_nor_read,
    }
    groups {
        changes_that_wait_for_each_other_share_a_commit,
        a_change_that_is_dropped_takes_nothing_of_its_group_along,
        nobody_of_a_group_is_told_that_it_is_done_when_its_commit_fails,
        whoever_gives_up_waiting_leaves_no_group_without_its_commit,
        a_group_does_not_grow_while_others_keep_coming,
    }
    hints {
        a_hint_comes_after_the_commit,
        without_a_commit_there_is_no_hint,
        an_accepted_operation_and_a_request_to_cancel_are_hinted,
    }
    history {
        mark_names_every_commit_before_anybody_is_told,
        change_without_effect_and_one_that_fails_raise_no_mark,
        store_that_lost_commits_is_told_with_their_number_and_moments,
        history_that_goes_back_under_running_processes_stops_the_changes_of_all,
        proof_from_outside_stops_changes_until_a_history_is_begun_anew,
    }
    leases {
        a_lease_is_held_by_one_and_renewed_by_its_holder,
        an_expired_lease_is_taken_over_under_a_higher_fence,
        a_released_lease_is_free_at_once_and_its_fence_still_grows,
        turns_are_given_up_for_good_and_those_that_nobody_gave_up_are_removed_once_they_have_run_out,
        a_stale_fence_is_refused,
        of_many_that_ask_at_once_one_gets_the_lease,
        leases_of_a_dead_replica_end_together_and_those_of_others_stay,
        leases_end_by_the_clock_of_the_database,
    }
    dumps {
        what_is_dumped_comes_back_whole_and_on_the_other_database_too,
        restored_leases_are_ended_and_their_fences_leap,
        a_second_restore_of_one_dump_leaps_beyond_the_first,
        a_dump_that_is_not_whole_or_not_ours_changes_nothing,
        every_table_is_dumped_or_said_not_to_be,
    }
    membership {
        a_replica_lives_for_as_long_as_it_renews,
        only_the_dead_are_buried_and_each_once,
        what_a_buried_replica_held_is_free_and_announced,
        the_end_of_an_older_connection_takes_no_newer_one_away,
        a_connection_that_is_recorded_late_takes_no_newer_ones_place,
        a_connection_holds_the_newest_key_set_that_it_took_and_one_that_ended_none,
        the_living_sign_under_one_fence_and_a_successor_under_a_higher,
    }
    lists {
        pages_are_stable_while_rows_are_added,
        a_page_has_at_least_one_record_and_at_most_the_limit,
        every_node_is_read_beyond_a_page,
        nodes_are_filtered_by_state_and_connectivity,
        allocations_are_filtered_by_project_state_and_node,
        workloads_are_filtered_and_counted,
        operations_are_filtered_and_the_open_ones_found,
        tasks_are_filtered_and_the_open_ones_found,
        the_audit_is_filtered_and_paged_by_its_number,
        what_pages_show_of_other_rows_takes_one_statement_each,
        a_workloads_parts_are_its_own_and_leave_out_what_is_over,
    }
    migrations {
        a_store_of_a_newer_version_is_refused,
        an_edited_migration_is_noticed,
        opening_again_keeps_rows_and_migrates_nothing,
        rows_of_before_say_in_columns_what_their_documents_do,
        migration_removes_service_accounts_without_codes_and_their_tokens,
        store_of_before_has_had_its_first_administrator_and_a_fresh_one_has_not,
        failed_migration_is_named_and_changes_nothing,
        objects_that_no_version_made_are_left_alone_unless_a_migration_meets_them,
        many_may_open_a_fresh_store_at_once,
        an_unknown_database_is_refused_without_its_password,
    }
    names {
        a_project_name_is_taken_once,
        a_node_name_is_taken_once,
        a_workload_name_is_its_own_within_its_project_until_it_is_gone,
        an_artifact_is_imported_once_and_other_bytes_under_its_name_are_refused,
        of_many_that_take_a_name_at_once_one_succeeds,
    }
    keys {
        a_key_that_is_made_or_changed_is_hinted,
        one_key_is_active_and_one_staged_at_most,
        a_key_that_signs_no_more_has_no_seed,
        an_authority_that_is_retired_has_no_key,
        open_tasks_are_counted_by_the_key_that_signed_them,
        tokens_are_counted_while_they_are_good_and_removed_once_they_are_not,
        a_service_account_has_its_name_alone_until_it_is_deleted,
        the_tokens_of_a_service_account_go_with_it_and_others_stay,
    }
    remembered {
        the_first_answer_under_a_key_stays,
        old_answers_are_forgotten_and_new_ones_kept,
        sealed_secrets_come_back_byte_by_byte,
        a_secret_of_the_same_name_takes_the_place_of_the_earlier,
        the_secrets_of_a_workload_go_together,
        the_first_setting_of_a_name_stays,
        a_token_is_found_by_its_digest_and_withdrawn_once,
        a_withdrawn_grant_keeps_its_first_moment,
    }
    retention {
        an_event_or_audit_record_is_deleted_only_where_an_archive_holds_it,
        the_database_refuses_to_change_or_remove_an_archive,
        what_is_archived_is_old_without_gaps_and_never_the_newest,
        an_operation_is_due_once_it_ended_and_another_followed_or_its_workload_is_gone,
        an_archived_operation_goes_with_all_that_is_its_own_and_once,
        tasks_that_serve_no_operation_are_archived_by_themselves,
        enrollments_and_grants_are_deleted_after_their_end_and_no_earlier,
        tables_are_measured,
    }
    sealing {
        rows_are_readable_throughout_and_under_the_new_key_alone_in_the_end,
        what_is_written_is_under_the_key_that_the_rows_name_whatever_its_writer_thought,
        a_row_that_nothing_proves_is_not_proven_by_a_rotation,
        nothing_is_written_without_the_key_that_the_rows_name,
    }
    swap {
        a_node_read_before_another_change_is_stale,
        an_allocation_read_before_another_change_is_stale,
        a_workload_read_before_another_change_is_stale,
        a_member_is_written_only_from_the_state_it_was_in,
        operations_steps_and_tasks_are_written_only_from_the_state_they_were_in,
        of_many_that_change_a_node_at_once_each_generation_is_taken_once,
    }
    trail {
        the_audit_counts_without_gaps_across_dropped_changes,
        many_writers_leave_no_gap_in_the_audit,
        the_database_refuses_to_change_or_remove_an_event,
        the_database_refuses_to_change_or_remove_an_audit_record,
        an_audit_record_reads_back_as_it_was_written,
        an_audit_record_keeps_which_token_acted_beside_its_metadata,
    }
    unreadable {
        row_that_cannot_be_read_is_named_by_table_key_and_column,
        verification_reads_every_row_beside_a_writer_and_names_each_that_is_wrong,
        store_without_a_platform_is_told_from_one_with_and_nothing_is_made,
    }
    versions {
        database_of_every_earlier_version_becomes_a_fresh_ones_equal_and_keeps_its_rows,
    }
}
