//! The script's date parser `epoch_of`: calendar arithmetic in shell, because `date` differs between machines.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use super::machine::{SCRIPT, found, shells};

/// Returns the text of the function `epoch_of` from the script.
fn epoch_of() -> &'static str {
    let from = SCRIPT.find("epoch_of() {").expect("it is there");
    let length = SCRIPT[from..].find("\n}\n").expect("it ends") + 3;
    &SCRIPT[from..from + length]
}

/// Returns the epoch seconds that the shell's `epoch_of` prints for each date; an invalid date yields an empty line.
fn read_by(shell: &[&str], dates: &[String]) -> Vec<String> {
    let script = format!("set -fu\n{}while IFS= read -r date; do echo \"$(epoch_of \"$date\")\"; done", epoch_of());
    let mut command = Command::new(found(shell[0]).expect("it is here"));
    command.args(&shell[1..]).args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a shell");
    let mut input = child.stdin.take().expect("a pipe");
    let lines = dates.iter().map(|date| format!("{date}\n")).collect::<String>();
    let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    writing.join().expect("no panic").expect("written");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a text").lines().map(str::to_owned).collect()
}

#[test]
fn http_dates_are_parsed_correctly() {
    // 400 samples, one about every 32 days from 1970 to 2004, then 2000-02-29 (leap year) and 2100-03-01 (no leap year).
    let moments: Vec<i64> =
        (0..400).map(|step| step * (31 * 86_400 + 86_399)).chain([951_782_400, 4_107_542_400]).collect();
    let shown = |second: &i64| {
        let at = jiff::Timestamp::from_second(*second).expect("a time");
        at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
    };
    let dates: Vec<String> = moments.iter().map(shown).collect();
    let wanted: Vec<String> = moments.iter().map(i64::to_string).collect();
    for shell in shells() {
        assert_eq!(read_by(shell, &dates), wanted, "{shell:?}");
    }
}

#[test]
fn invalid_dates_yield_nothing() {
    let none = [
        "",
        "soon",
        "Sun, 06 Nov 1994",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Foo 1994 08:49:37 GMT",
        "Sun, 06 Nov 0094 08:49:37 GMT",
        "Sun, 06 Nov 1994 008:49:37 GMT",
        "Sun, 06 Nov 1994 $(id):49:37 GMT",
        "Sun, 06 Nov 1994 ::1 GMT",
        "Sun, * Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 99999999999999999999 08:49:37 GMT",
    ];
    let none: Vec<String> = none.map(str::to_owned).to_vec();
    for shell in shells() {
        assert_eq!(read_by(shell, &none), vec![""; none.len()], "{shell:?}");
    }
}
