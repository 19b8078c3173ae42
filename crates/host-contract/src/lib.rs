//! The behaviour that every implementation of [`gpuaas_host::Host`] must have, as one suite: [`host_contract!`].
//!
//! Guarantees: cases use only the interface, the host's paths, `/bin/sh` and unit files, so that the same cases test a sandbox and systemd;
//! they wait for signals and journal lines, and let time pass only if they test timing.
//!
//! Deliberately absent: the creation of a backend's host (each test binary does that), and behaviour that only one backend has.

#![allow(clippy::unwrap_used, reason = "every function here is part of a test")]
#![allow(missing_docs, reason = "each case is named by the behaviour that it checks")]

pub mod attacks;
mod bench;
pub mod clients;
pub mod conditions;
pub mod files;
pub mod inventory;
pub mod journals;
pub mod masks;
pub mod restarts;
pub mod starts;
pub mod stops;
pub mod survey;

pub use bench::{Bench, WAIT_MAX};

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

/// Runs a case until it ends, for at most [`WAIT_MAX`].
pub fn run(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(WAIT_MAX, case).await.expect("the case ends in its time limit") });
}

/// Generates one test per case of the suite, each on a new backend from `$fresh`.
#[macro_export]
macro_rules! host_contract {
    (@every $form:ident $rest:tt) => {
        $crate::host_contract! { @$form $rest;
            files: second_write_changes_nothing_and_a_new_mode_is_a_change;
            files: reader_of_a_replaced_file_reads_the_old_content;
            files: missing_folders_are_created;
            files: link_is_replaced_and_its_target_stays;
            files: removal_does_not_follow_links;
            files: second_copy_changes_nothing_and_the_mode_is_set;
            files: copy_with_another_digest_is_refused;
            files: file_writable_by_others_is_not_trusted;
            files: appends_of_two_clients_are_in_order;
            files: file_longer_than_the_limit_is_refused;
            files: file_owner_is_the_user_of_the_host;
            attacks: link_in_a_path_is_not_followed;
            attacks: link_in_place_of_a_file_is_not_followed;
            attacks: hard_linked_file_is_not_changed;
            attacks: named_pipe_does_not_block_operations;
            attacks: device_is_not_opened;
            attacks: mount_is_neither_emptied_nor_appended_to;
            attacks: removal_of_a_folder_keeps_link_targets;
            attacks: links_of_distributions_are_followed;
            starts: simple_unit_runs_as_soon_as_it_is_started;
            starts: notify_unit_is_activating_until_ready;
            starts: start_without_notification_times_out;
            starts: notify_unit_that_exits_before_ready_fails;
            starts: changed_unit_file_applies_after_a_reload;
            starts: missing_unit_differs_from_inactive_unit;
            starts: missing_program_is_status_203;
            starts: environment_files_override_the_unit_and_each_other;
            starts: missing_environment_file_fails_the_start_unless_optional;
            conditions: unmet_path_condition_skips_the_start;
            conditions: failed_exec_condition_skips_the_start;
            conditions: exec_condition_with_status_255_fails_the_start;
            conditions: failed_start_pre_fails_the_unit;
            conditions: optional_start_pre_may_fail;
            conditions: skip_differs_from_success;
            restarts: crash_loop_without_start_limit_never_fails;
            restarts: start_limit_fails_the_unit_until_reset;
            restarts: exit_0_is_restarted_with_restart_always;
            restarts: exit_0_is_not_restarted_with_restart_on_failure;
            restarts: killed_program_is_restarted_and_counted;
            restarts: program_ended_by_sigterm_has_not_failed;
            restarts: stop_ends_the_wait_for_a_restart;
            stops: stop_ends_every_process_of_the_unit;
            stops: kill_mode_process_keeps_children;
            stops: children_do_not_outlive_a_main_process_that_ends;
            stops: unit_that_ignores_sigterm_is_killed_after_its_timeout;
            stops: stop_ends_a_unit_in_start_pre;
            stops: stop_post_is_run;
            stops: second_stop_changes_nothing;
            stops: second_enable_and_disable_change_nothing;
            masks: masked_unit_starts_only_after_its_mask_is_lifted;
            masks: unit_file_state_says_what_starts_at_boot;
            masks: paths_of_enablement_change_with_it;
            stops: signals_of_a_unit_end_when_it_is_removed;
            stops: unit_without_install_section_cannot_be_enabled;
            journals: journal_continues_after_a_cursor;
            journals: journal_starts_at_a_time;
            journals: journal_tail_is_its_last_lines;
            journals: followed_journal_yields_new_lines;
            journals: long_line_is_truncated_and_marked;
            journals: invalid_utf8_does_not_break_a_journal;
            journals: each_unit_has_its_own_journal;
            inventory: processes_are_found_by_the_folder_of_their_program;
            inventory: listeners_are_found_at_the_nodes_and_at_any_address;
            inventory: paths_are_listed_and_measured;
            inventory: facts_describe_the_host;
            inventory: program_gets_the_variables_of_its_command;
            inventory: processes_have_their_unit;
            inventory: listener_has_its_process;
            inventory: mounts_are_found_by_prefix;
            inventory: link_is_listed_while_it_exists;
            inventory: firewall_rules_are_found_by_substring;
            survey: host_reads_its_own_files;
            survey: kernel_parameter_is_set_once_and_read_back;
            survey: loaded_module_is_not_loaded_again;
            clients: concurrent_starts_start_once;
            clients: start_continues_without_its_client;
            clients: units_survive_a_restart_of_the_agent;
            clients: signals_begin_with_the_current_status;
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
