use super::*;
use crate::commands::audit::AUDIT;

fn fitted(headers: &[&'static str], rows: &[&[&str]], room: usize, may_drop: bool) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect();
    let (layout, rows) = Layout::fitting(headers.to_vec(), &rows, Some(room), id_length(headers, &rows), may_drop);
    let lines = rows.iter().map(|row| layout.row(row));
    std::iter::once(layout.header()).chain(lines).collect::<Vec<_>>().join("\n")
}

fn shown(room: usize, may_drop: bool) -> String {
    let rows: [&[&str]; 2] =
        [&["gpu-0001", "waits until the server answers on its port", "failed"], &["gpu-0002", "", "active"]];
    fitted(&["NAME", "WAITING FOR", "PHASE"], &rows, room, may_drop)
}

#[test]
fn ids_and_times_are_shortened_before_columns_are_dropped_and_states_are_dropped_last() {
    let long_ago = (jiff::Timestamp::now() - jiff::SignedDuration::from_hours(50)).to_string();
    let rows: [&[&str]; 2] = [
        &["0198c0de-7a3b-7c11-9b54-0242ac120002", "train", "deploy", "succeeded", &long_ago],
        &["0198c0de-8a3b-7c11-9b54-0242ac120002", "infer", "deploy", "failed", ""],
    ];
    let headers = ["ID", "WORKLOAD", "KIND", "STATE", "CREATED"];
    assert!(fitted(&headers, &rows, 130, true).contains("0242ac120002  train"));
    assert!(
        fitted(&headers, &rows, 80, true).contains(&format!("0198c0de-7  train     deploy  succeeded  {long_ago}"))
    );
    insta::assert_snapshot!(fitted(&headers, &rows, 55, true), @r"
    ID          WORKLOAD  KIND    STATE      CREATED
    0198c0de-7  train     deploy  succeeded  2 days ago
    0198c0de-8  infer     deploy  failed
    ");
    insta::assert_snapshot!(fitted(&headers, &rows, 32, true), @r"
    ID          WORKLOAD  STATE
    0198c0de-7  train     succeeded
    0198c0de-8  infer     failed
    ");
    let targets: [&[&str]; 2] = [&["token/0198c0de-7a3b-7c11-9b54-0242ac120002", "accepted"], &["node/gpu-1", ""]];
    insta::assert_snapshot!(fitted(&["TARGET", "RESULT"], &targets, 30, true), @r"
    TARGET          RESULT
    token/0198c0de  accepted
    node/gpu-1
    ");
    insta::assert_snapshot!(fitted(&headers, &rows, 12, true), @r"
    STATE
    succeeded
    failed
    ");
}

#[test]
fn sentences_are_wrapped_between_words_and_lines_have_no_trailing_blanks() {
    insta::assert_snapshot!(shown(42, true), @r"
    NAME      WAITING FOR               PHASE
    gpu-0001  waits until the server    failed
              answers on its port
    gpu-0002                            active
    ");
    assert!(shown(100, true).contains("its port  failed"));
}

#[test]
fn columns_without_room_are_dropped_from_the_right_but_not_in_a_text() {
    insta::assert_snapshot!(shown(30, true), @r"
    NAME      WAITING FOR
    gpu-0001  waits until the
              server answers on
              its port
    gpu-0002
    ");
    assert!(shown(30, false).contains("PHASE"));
    assert!(shown(3, true).starts_with("NAME\ngpu-0001\n"), "the first column stays, and no word is cut");
}

#[test]
fn distinguishing_column_is_shown_if_its_cells_differ_and_by_wide() {
    type Row = (&'static str, &'static str);
    let columns = [column("NAME", |of: &Row| of.0.to_owned()), distinguishing("PROJECT", |of| of.1.to_owned())];
    let of = |rows: &[Row], is_wide, has_more_rows| Layout::of(&columns, rows, is_wide, has_more_rows).0.header();
    let header = |rows: &[Row], is_wide| of(rows, is_wide, false);
    assert_eq!(header(&[("train", "one"), ("infer", "one")], false), "NAME");
    assert_eq!(header(&[("train", "one"), ("train", "two")], false), "NAME   PROJECT");
    assert_eq!(header(&[("train", "one")], true), "NAME   PROJECT");
    assert_eq!(header(&[], false), "NAME");
    assert_eq!(of(&[("train", "one")], false, true), "NAME   PROJECT");
}

#[test]
fn texts_are_shortened_between_words() {
    assert_eq!(shortened("kubelet not ready", 17), "kubelet not ready");
    assert_eq!(shortened("kubelet not ready", 16), "kubelet not …");
    assert_eq!(shortened("kubelet not ready", 8), "…");
}

#[test]
fn cells_are_escaped_and_colours_of_a_table_within_a_text_are_not() {
    let rows = [vec!["a\u{1b}[2Jb".to_owned(), "c\nd".to_owned(), "ready".to_owned()]];
    let green = |state: &str| format!("\u{1b}[32m{state}\u{1b}[0m");
    let mut text = Text::from("x\u{1b}[2J\n");
    text.push(&painted_table(&["ONE", "TWO", "STATE"], rows.into_iter(), green));
    let shown = "x\\u{1b}[2J\nONE          TWO      STATE\na\\u{1b}[2Jb  c\\u{a}d  \u{1b}[32mready\u{1b}[0m";
    assert_eq!(text.as_str(), shown);
}

#[test]
fn narrow_audit_keeps_who_did_what() {
    let headers = Layout::of(AUDIT, &[], false, false).0.headers;
    let mut kept: Vec<usize> = (0..headers.len()).collect();
    let mut dropped = Vec::new();
    while let Some(at) = next_dropped(&headers, &kept) {
        kept.retain(|of| *of != at);
        dropped.push(headers[at]);
    }
    assert_eq!(dropped, ["CORRELATION", "TOKEN", "DETAIL", "AT", "TARGET", "ACTOR", "RESULT", "ACTION"]);
}

#[test]
fn column_without_a_value_is_dropped_first() {
    let rows: [&[&str]; 2] = [&["gpu-1", "active", "", "fra1"], &["gpu-2", "active", "", ""]];
    insta::assert_snapshot!(fitted(&["NAME", "STATE", "WAITING FOR", "REGION"], &rows, 30, true), @r"
    NAME   STATE   REGION
    gpu-1  active  fra1
    gpu-2  active
    ");
}

#[test]
fn details_are_shortened_and_digests_too_before_columns_are_dropped() {
    let digest = "6122cdf07da94575d1aa82abfa22c98163a0fa7cea1643e65a27edbd5a895bc6";
    let (authority, task) = (format!("authority/{digest}"), format!("type=rke2.start envelope=sha256:{digest}"));
    let rows: [&[&str]; 2] = [
        &["1", "control-plane", "authority.activate", &authority, ""],
        &["2", "control-plane", "task.dispatch", "node/gpu-1", &task],
    ];
    let headers = ["SEQ", "ACTOR", "ACTION", "TARGET", "DETAIL"];
    insta::assert_snapshot!(fitted(&headers, &rows, 90, true), @r"
    SEQ  ACTOR          ACTION              TARGET              DETAIL
    1    control-plane  authority.activate  authority/6122cdf0
    2    control-plane  task.dispatch       node/gpu-1          type=rke2.start …
    ");
    assert!(!fitted(&headers, &rows, 70, true).contains("DETAIL"), "no room for 20 characters of it");
    assert!(fitted(&headers, &rows, 300, true).contains(digest), "whole where there is room");
}
