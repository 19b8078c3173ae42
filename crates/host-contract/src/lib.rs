//! The behaviour that every implementation of [`gpuaas_host::Host`] must have, as one suite: [`host_contract!`].
//!
//! Guarantees: cases use only the interface, the host's paths, `/bin/sh` and unit files, so that the same cases test a sandbox and systemd;
//! they wait for signals and journal lines, and let time pass only if they test timing.
//!
//! Deliberately absent: the creation of a backend's host (each test binary does that), and behaviour that only one backend has.

#![allow(clippy::unwrap_used, reason = "every function here is part of a test")]
#![allow(missing_docs, reason = "a case's name is the sentence that it checks")]

pub mod attacks;
mod bench;
pub mod clients;
pub mod conditions;
pub mod files;
pub mod inventory;
pub mod journals;
pub mod restarts;
pub mod starts;
pub mod stops;
pub mod survey;

pub use bench::{Bench, PATIENCE};

use std::sync::Arc;

use futures::future::LocalBoxFuture;
use gpuaas_host::Host;

/// A host that is created for one case and removed after it.
pub trait Backend {
    /// Returns a new client of the host, like an agent that has just started.
    fn client(&self) -> Arc<dyn Host>;
    /// Returns a shell command that sends READY=1 for the unit that runs it.
    fn notifier(&self) -> String;
    /// Returns the path of the suite's own program `contract-node` on the host.
    fn program(&self) -> String;
    /// Returns true if the host is a machine with its own network, mounts and packet filter; false if it shares another machine's and
    /// reports none.
    fn is_machine(&self) -> bool;
}

/// A case of the suite.
pub type Case = for<'a> fn(&'a dyn Backend) -> LocalBoxFuture<'a, ()>;

/// Runs a case until it ends, for at most [`PATIENCE`].
pub fn run(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, case).await.expect("the case ends in time") });
}

/// Generates one test per case of the suite, each on a new backend from `$fresh`.
#[macro_export]
macro_rules! host_contract {
    (@every $form:ident $rest:tt) => {
        $crate::host_contract! { @$form $rest;
            files: a_file_is_written_once_and_its_mode_counts;
            files: a_reader_of_a_replaced_file_keeps_the_old_one_whole;
            files: folders_that_are_missing_are_made;
            files: a_link_is_replaced_and_what_it_led_to_stays;
            files: what_is_removed_is_gone_and_a_link_takes_nothing_along;
            files: a_copy_changes_once_and_has_its_own_mode;
            files: a_copy_of_other_bytes_is_refused_and_changes_nothing;
            files: a_file_that_others_may_write_is_not_believed;
            files: appended_bytes_follow_each_other_also_from_another_client;
            files: a_file_longer_than_asked_for_is_refused;
            files: a_file_belongs_to_whom_the_host_runs_as;
            attacks: a_link_in_the_way_is_not_followed;
            attacks: a_link_in_a_files_place_is_not_followed;
            attacks: a_hard_link_is_not_changed_through_its_other_name;
            attacks: a_named_pipe_hangs_no_operation;
            attacks: a_device_is_not_opened;
            attacks: a_mount_is_not_emptied_with_the_folder_around_it_nor_appended_to;
            attacks: a_folder_with_links_in_it_is_removed_and_nothing_else;
            attacks: what_distributions_link_is_looked_up_where_it_leads;
            starts: a_simple_unit_runs_as_soon_as_it_is_started;
            starts: a_notify_unit_is_activating_until_it_says_ready;
            starts: a_start_that_never_notifies_times_out_and_says_so;
            starts: a_notify_unit_that_ends_well_before_it_is_ready_has_failed;
            starts: a_changed_unit_file_counts_from_the_reload_on;
            starts: a_unit_that_is_not_there_is_told_from_one_that_does_not_run;
            starts: a_missing_program_is_status_203;
            starts: environment_files_override_the_unit_and_each_other;
            starts: a_missing_environment_file_fails_the_start_unless_it_is_optional;
            conditions: an_unmet_path_condition_is_a_skip_and_no_failure;
            conditions: an_exec_condition_that_says_no_is_a_skip_and_no_failure;
            conditions: an_exec_condition_that_breaks_is_a_failure;
            conditions: a_failing_start_pre_fails_the_unit_and_nothing_is_run;
            conditions: a_start_pre_that_may_fail_stops_nothing;
            conditions: a_skip_is_told_from_a_success;
            restarts: a_program_that_exits_at_once_loops_and_never_fails;
            restarts: restarts_that_come_too_quickly_end_in_failure_until_it_is_reset;
            restarts: exit_0_is_restarted_where_always_is_said;
            restarts: exit_0_is_an_end_where_on_failure_is_said;
            restarts: a_killed_program_comes_back_and_is_counted;
            restarts: a_program_that_is_told_to_end_has_not_failed;
            restarts: a_stop_ends_the_wait_for_a_restart;
            stops: a_stop_takes_every_process_of_the_unit_along;
            stops: with_kill_mode_process_a_stop_leaves_children_alone;
            stops: children_do_not_outlive_a_main_process_that_ends;
            stops: a_unit_deaf_to_sigterm_is_killed_after_its_patience;
            stops: a_stop_reaches_a_unit_that_still_prepares;
            stops: what_follows_a_stop_is_run;
            stops: stopping_twice_changes_once;
            stops: enabling_and_disabling_twice_change_once;
            stops: signals_of_a_unit_end_when_it_is_removed;
            stops: a_unit_that_says_nowhere_when_it_is_wanted_cannot_be_enabled;
            journals: a_journal_goes_on_behind_a_cursor;
            journals: a_journal_begins_at_a_time;
            journals: a_journals_tail_is_its_last_lines;
            journals: a_followed_journal_goes_on_with_new_lines;
            journals: a_line_of_a_megabyte_is_cut_and_says_so;
            journals: bytes_that_are_no_text_do_not_break_a_journal;
            journals: a_unit_has_its_own_journal;
            inventory: processes_are_told_by_the_folder_of_their_program;
            inventory: listeners_are_told_at_the_nodes_address_and_at_every_address;
            inventory: paths_are_told_as_they_are;
            inventory: a_host_says_what_it_is;
            inventory: a_program_gets_the_variables_of_its_command;
            inventory: processes_are_told_with_their_unit;
            inventory: a_listener_is_told_with_who_holds_it;
            inventory: a_mount_is_told_as_it_is_named;
            inventory: a_link_is_told_while_it_is_there;
            inventory: rules_of_the_packet_filter_are_told_by_their_words;
            survey: a_host_reads_its_own_files;
            survey: a_kernel_parameter_is_set_once_and_read_back;
            survey: a_module_that_is_there_is_not_loaded_again;
            clients: of_two_starts_at_once_one_starts_it;
            clients: a_start_goes_on_when_its_client_is_gone;
            clients: units_do_not_notice_that_an_agent_went_and_another_came;
            clients: signals_begin_with_how_the_unit_is;
        }
    };
    (@tests ($fresh:path); $($module:ident: $case:ident;)+) => {
        $(
            #[test]
            fn $case() {
                $crate::run(async {
                    let backend = $fresh().await;
                    $crate::$module::$case(&backend).await;
                });
            }
        )+
    };
    (@list (); $($module:ident: $case:ident;)+) => {
        vec![$({
            fn $case(backend: &dyn $crate::Backend) -> ::futures::future::LocalBoxFuture<'_, ()> {
                Box::pin($crate::$module::$case(backend))
            }
            (stringify!($case), $case as $crate::Case)
        }),+]
    };
    ($fresh:path) => {
        $crate::host_contract! { @every tests ($fresh) }
    };
}

/// Returns every case of the suite with its name, for test binaries with their own harness.
pub fn cases() -> Vec<(&'static str, Case)> {
    host_contract! { @every list () }
}
