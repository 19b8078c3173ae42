//! The contract of the store: each behaviour below runs once per database backend.
//!
//! A behaviour is a function that takes a fresh [`Database`](contract::database::Database); its name is the sentence that it verifies. A
//! behaviour that is not listed here is dead code and fails the lint.

#![allow(clippy::unwrap_used, reason = "each behaviour is a test; the test attribute is on the generated caller")]
#![allow(clippy::cloned_ref_to_slice_refs, reason = "expected lists are written as lists, even with one item")]

mod contract {
    pub(crate) mod browsers;
    pub(crate) mod claims;
    pub(crate) mod columns;
    pub(crate) mod conflicts;
    pub(crate) mod counts;
    pub(crate) mod crash;
    pub(crate) mod database;
    pub(crate) mod deletion;
    pub(crate) mod dumps;
    pub(crate) mod encryption;
    pub(crate) mod enrollment;
    pub(crate) mod events;
    pub(crate) mod forged_rows;
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
    pub(crate) mod replicas;
    pub(crate) mod reports;
    pub(crate) mod retention;
    pub(crate) mod sealing;
    pub(crate) mod seals;
    pub(crate) mod stored_values;
    pub(crate) mod swap;
    pub(crate) mod trail;
    pub(crate) mod unreadable;
    pub(crate) mod versions;
}

macro_rules! behaviours {
    (@on $backend:ident as $module:ident: $($topic:ident { $($name:ident,)+ })+) => {
        mod $module {
            $(mod $topic {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let database = crate::contract::database::Database::$backend().await;
                    database.run(crate::contract::$topic::$name).await;
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
    conflict_is_reported_as_busy_and_retried_until_it_passes,
    persistent_conflict_is_given_up,
    change_is_retried_after_a_deadlock_with_another_session,
    writer_that_never_ends_makes_others_fail_as_busy,
} replicas {
    change_on_a_lost_connection_leaves_nothing_and_the_store_reconnects,
    a_connection_cut_before_a_commit_does_not_commit,
    readers_recover_when_idle_connections_were_cut,
    lost_connections_under_load_leave_no_gap_and_no_partial_change,
    other_processes_get_hints_after_the_commit_and_the_writer_gets_each_once,
    lost_listener_reports_missed_hints_and_reconnects,
    a_closed_store_leaves_no_connection,
    events_and_audit_records_cannot_be_truncated,
});

behaviours! {
    browsers {
        session_is_found_by_its_digest_and_listed_for_its_token,
        use_extends_a_session_and_a_revoked_one_stays_deleted,
        a_sign_in_link_is_used_once,
        ended_sessions_and_links_are_deleted_and_others_kept,
        forged_session_and_link_are_unknown,
        sessions_and_links_outlive_a_rotation_of_the_sealing_key,
    }
    claims {
        node_has_one_open_allocation_and_is_free_after_its_release,
        the_database_itself_refuses_a_second_open_allocation_of_a_node,
        an_allocation_carries_one_member_and_the_refusal_names_the_workload,
        members_on_external_machines_have_neither_allocation_nor_node,
        the_database_itself_refuses_a_second_member_on_an_allocation,
        a_workload_has_one_open_operation_and_the_refusal_names_it,
        the_database_itself_refuses_a_second_open_operation_of_a_workload,
        one_of_many_concurrent_allocations_of_a_node_succeeds,
        one_of_many_concurrent_operations_of_a_workload_is_accepted,
        members_keep_the_order_of_their_placement,
    }
    columns {
        every_column_survives_dump_and_restore_on_both_databases,
        a_value_of_another_type_than_its_column_is_refused,
        restore_target_is_inspected_without_changes,
        failed_fill_leaves_no_schema_and_a_successful_one_changes_no_row,
    }
    counts {
        committed_changes_are_counted_and_dropped_ones_are_not,
    }
    crash {
        a_change_dropped_before_its_commit_leaves_nothing,
        change_cancelled_during_a_statement_leaves_nothing_and_blocks_no_other,
        a_change_with_a_failed_statement_does_not_commit,
        reader_sees_one_snapshot,
        single_statement_reader_sees_the_latest_commit_and_reads_once,
    }
    enrollment {
        redemption_returns_the_terms_of_the_token,
        key_is_certified_once_and_the_oldest_keys_of_a_node_are_deleted,
        a_token_works_once,
        one_of_two_concurrent_redemptions_succeeds,
        token_is_refused_if_expired_unknown_or_for_another_node,
        a_newer_token_of_the_same_node_ends_the_older,
        a_redeemed_token_is_unused_again_when_its_change_is_dropped,
    }
    events {
        each_stream_is_numbered_from_one,
        many_writers_and_rollbacks_leave_no_gap,
        readers_see_event_numbers_in_order,
        events_are_read_in_order_after_a_number,
        an_event_for_every_project_takes_two_statements_and_the_next_number_of_each,
    }
    forged_rows {
        forged_token_is_ignored_and_reported,
        altered_service_account_is_refused_and_reported,
        forged_signing_key_is_not_in_the_key_set,
        forged_authority_is_not_read,
        forged_enrollment_is_unknown,
        forged_rows_do_not_hide_verified_ones_from_a_page,
        records_are_neither_written_nor_read_without_a_proof,
    }
    groups {
        waiting_changes_share_a_commit,
        dropped_change_does_not_affect_its_group,
        failed_group_commit_fails_every_change_of_the_group,
        group_is_committed_when_the_next_waiting_change_is_cancelled,
        group_size_is_limited_under_load,
    }
    hints {
        a_hint_comes_after_the_commit,
        without_a_commit_there_is_no_hint,
        an_accepted_operation_and_a_request_to_cancel_are_hinted,
        only_an_open_operation_of_the_platform_yields_and_is_hinted,
    }
    history {
        mark_is_raised_before_a_commit_is_acknowledged,
        empty_or_failed_change_does_not_raise_the_mark,
        lost_commits_are_detected_and_described,
        history_that_goes_back_stops_changes_in_all_processes,
        external_evidence_stops_changes_until_the_next_generation,
    }
    leases {
        a_lease_is_held_by_one_and_renewed_by_its_holder,
        an_expired_lease_is_taken_over_under_a_higher_fence,
        a_released_lease_is_free_at_once_and_its_fence_still_grows,
        deleted_and_expired_request_leases_are_removed,
        a_stale_fence_is_refused,
        one_of_many_concurrent_requests_gets_the_lease,
        leases_of_a_dead_replica_end_together_and_those_of_others_stay,
        leases_end_by_the_clock_of_the_database,
    }
    dumps {
        restore_counts_the_rows_of_a_dump_and_numbers_continue,
        restored_leases_are_expired_with_raised_fences,
        second_restore_raises_fences_above_the_first,
        incomplete_or_malformed_dump_changes_nothing,
        every_table_is_listed_as_dumped_or_not,
    }
    membership {
        replica_is_alive_while_it_renews_its_lease,
        only_expired_replicas_are_evicted_and_each_once,
        leases_and_sessions_of_an_evicted_replica_are_released_and_hinted,
        end_of_an_older_connection_keeps_the_newer_session,
        older_connection_does_not_replace_a_newer_session,
        session_records_the_newest_key_set_until_it_ends,
        live_replicas_share_a_fence_and_a_successor_gets_a_higher_one,
    }
    reports {
        a_report_replaces_the_one_before_and_is_verified_and_dumped,
        a_report_is_forgotten_alone,
        account_and_token_of_a_controller_keep_their_workload,
    }
    deletion {
        deleted_node_gives_back_its_name_and_keeps_its_history,
        deleted_project_gives_back_its_name,
        contents_of_a_project_are_what_it_still_uses,
    }
    lists {
        pages_are_stable_while_rows_are_added,
        a_page_has_at_least_one_record_and_at_most_the_limit,
        every_node_is_read_beyond_a_page,
        ids_are_found_by_their_first_characters,
        nodes_are_filtered_by_state_and_connectivity,
        allocations_are_filtered_by_project_state_and_node,
        workloads_are_filtered_and_counted,
        operations_are_filtered_and_the_open_ones_found,
        tasks_are_filtered_and_the_open_ones_found,
        the_audit_is_filtered_and_paged_by_its_number,
        related_rows_of_a_page_take_one_statement_each,
        workload_parts_leave_out_removed_members_and_have_the_newest_operation,
        what_a_page_waits_for_is_found_in_one_statement_each,
    }
    migrations {
        a_store_of_a_newer_version_is_refused,
        an_edited_migration_is_noticed,
        opening_again_keeps_rows_and_migrates_nothing,
        migration_fills_columns_from_documents,
        migration_ends_operations_that_a_later_one_superseded,
        failed_migration_is_named_and_changes_nothing,
        unknown_objects_are_kept_unless_a_migration_collides_with_them,
        many_may_open_a_fresh_store_at_once,
        an_unknown_database_is_refused_without_its_password,
    }
    names {
        a_project_name_is_taken_once,
        a_node_name_is_taken_once,
        workload_name_is_unique_in_its_project_until_decommissioned,
        an_artifact_is_imported_once_and_other_bytes_under_its_name_are_refused,
        one_of_many_concurrent_inserts_of_a_name_succeeds,
    }
    keys {
        a_key_that_is_made_or_changed_is_hinted,
        one_key_is_active_and_one_staged_at_most,
        a_key_that_signs_no_more_has_no_seed,
        an_authority_that_is_retired_has_no_key,
        open_tasks_are_counted_by_the_key_that_signed_them,
        tokens_are_counted_while_valid_and_deleted_afterwards,
        service_account_name_is_unique_until_deleted,
        deleting_a_service_account_revokes_only_its_tokens,
    }
    stored_values {
        first_response_under_an_idempotency_key_is_kept,
        old_idempotency_keys_are_deleted_and_new_ones_kept,
        sealed_secrets_come_back_byte_by_byte,
        secret_replaces_an_earlier_one_with_the_same_name,
        secrets_of_a_workload_are_deleted_together,
        first_value_of_a_setting_is_kept,
        token_is_found_by_its_digest_and_revoked_once,
        revoked_grant_keeps_its_first_revocation_time,
    }
    retention {
        an_event_or_audit_record_is_deleted_only_where_an_archive_holds_it,
        the_database_refuses_to_change_or_remove_an_archive,
        archivable_records_are_old_consecutive_and_never_the_newest,
        ended_operation_is_archivable_unless_it_is_the_newest_of_a_live_workload,
        archived_operation_is_deleted_with_its_rows_and_archived_once,
        tasks_without_an_operation_are_archived_on_their_own,
        enrollments_and_grants_are_deleted_after_their_end_and_no_earlier,
        tables_are_measured,
    }
    sealing {
        rows_stay_readable_during_a_rotation_and_end_under_the_new_key,
        writes_use_the_sealing_key_recorded_in_the_store,
        rotation_does_not_verify_forged_rows,
        write_fails_without_the_recorded_sealing_key,
    }
    seals {
        each_seal_continues_the_newest_one,
        the_database_refuses_to_change_or_remove_an_audit_seal,
        a_row_that_is_no_audit_record_is_returned_without_one,
        a_row_that_is_no_audit_seal_is_returned_without_one,
        the_archive_of_an_audit_record_is_found_by_its_number,
        commit_of_audit_records_wakes_the_sealer_of_its_process_alone,
    }
    swap {
        a_node_read_before_another_change_is_stale,
        an_allocation_read_before_another_change_is_stale,
        a_workload_read_before_another_change_is_stale,
        a_member_is_written_only_from_the_state_it_was_in,
        operations_steps_and_tasks_are_written_only_from_the_state_they_were_in,
        concurrent_node_updates_take_each_generation_once,
        revisions_of_a_reconciliation_are_quiet_until_something_else_changes,
    }
    trail {
        many_writers_leave_no_gap_in_the_audit,
        the_database_refuses_to_change_or_remove_an_event,
        the_database_refuses_to_change_or_remove_an_audit_record,
        an_audit_record_reads_back_as_it_was_written,
        audit_record_stores_the_acting_token_outside_its_metadata,
    }
    unreadable {
        row_that_cannot_be_read_is_named_by_table_key_and_column,
        verification_reads_every_row_during_a_change_and_names_defects,
        inspection_detects_a_missing_platform_and_creates_nothing,
        allocation_in_use_is_read_although_its_member_cannot_be,
    }
    versions {
        database_of_every_earlier_version_migrates_and_keeps_its_rows,
        workloads_of_earlier_versions_have_endpoints,
        machines_that_tenants_left_before_an_upgrade_are_remembered,
        audit_records_of_earlier_versions_get_their_workload,
        rows_before_drift_and_give_ups_are_read_and_take_the_new_fields,
    }
}
