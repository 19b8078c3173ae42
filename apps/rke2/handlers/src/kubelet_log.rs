//! The end of the kubelet's own log: RKE2's journal says that the kubelet exited, and never why.

use gpuaas_handler::Context;
use gpuaas_host::now;
use gpuaas_model::cut;
use gpuaas_wire::task::JournalExcerpt;

/// Part of the journal's line about a kubelet that ended.
pub(crate) const KUBELET_EXITED: &str = "Kubelet exited";
const LOG: &str = "/var/lib/rancher/rke2/agent/logs/kubelet.log";
/// Bytes read from the end of the log, which grows to 50 MB.
const END_BYTES_MAX: u64 = 64 * 1_024;
/// Most lines in a failure.
const LINES_MAX: usize = 5;
/// Longest line, in bytes, with its mark.
const LINE_BYTES_MAX: usize = 512;
/// Text before each line, which tells it from the lines of the journal.
const SOURCE: &str = "kubelet.log: ";
/// Part of the line with which a kubelet reports the error that ends it.
const COMMAND_FAILED: &str = "\"command failed\" err=";

/// Returns the last lines of the log that report an error, oldest first, with the time at which they were read; none if there is no such
/// file, or no regular one.
pub(crate) async fn errors(context: &Context) -> Vec<JournalExcerpt> {
    let tree = context.host.inventory().tree();
    let read = tokio::task::spawn_blocking(move || tree.own_end(LOG, END_BYTES_MAX)).await;
    let end = match read {
        Ok(Ok(end)) => end.unwrap_or_default(),
        Ok(Err(error)) => {
            tracing::warn!(%error, "could not read the kubelet's log");
            return Vec::new();
        }
        Err(error) => {
            tracing::warn!(%error, "the read of the kubelet's log was aborted");
            return Vec::new();
        }
    };
    let text = String::from_utf8_lossy(&end);
    let errors: Vec<&str> = text.lines().filter(|line| is_error(line)).collect();
    let last = &errors[errors.len().saturating_sub(LINES_MAX)..];
    let excerpt =
        |line: &&str| JournalExcerpt { at: now(), text: cut(&format!("{SOURCE}{line}"), LINE_BYTES_MAX).into_owned() };
    last.iter().map(excerpt).collect()
}

/// Returns true for the line that reports the kubelet's end, and for klog lines of level error or fatal, like `E1127 00:17:37.123456 …`. A
/// line whose beginning was not read is none.
fn is_error(line: &str) -> bool {
    let is_klog = || {
        let mut bytes = line.bytes();
        matches!(bytes.next(), Some(b'E' | b'F'))
            && bytes.by_ref().take(4).filter(u8::is_ascii_digit).count() == 4
            && bytes.next() == Some(b' ')
    };
    line.contains(COMMAND_FAILED) || is_klog()
}

#[cfg(test)]
mod tests {
    use gpuaas_handler::test_host::{context, sandbox};

    use super::*;

    async fn texts(log: &str) -> Vec<String> {
        let (_folder, host) = sandbox(&[(LOG, log)]);
        errors(&context(&host)).await.into_iter().map(|line| line.text).collect()
    }

    #[tokio::test]
    async fn cause_is_found_behind_ordinary_lines() {
        let ordinary = "I1127 00:17:36.000001    1234 server.go:80] \"Starting\"\n".repeat(2_000);
        let cause = r#"E1127 00:17:37.123456    1234 run.go:72] "command failed" err="failed to run Kubelet: misconfiguration: kubelet cgroup driver""#;
        let fatal = "F1127 00:17:37.200000    1234 main.go:1] no swap";
        let json = r#"{"ts":1,"msg":"x"} "command failed" err="y""#;
        let found = texts(&format!("{ordinary}{cause}\n{ordinary}{fatal}\nError: no klog\nE: none\n{json}\n")).await;
        // The ordinary lines after the cause are longer than what is read.
        assert_eq!(found, [format!("kubelet.log: {fatal}"), format!("kubelet.log: {json}")]);
        assert_eq!(texts(&format!("{ordinary}{cause}\n")).await, [format!("kubelet.log: {cause}")]);
    }

    #[tokio::test]
    async fn lines_are_bounded_in_number_and_length() {
        let long = format!("E1127 00:17:37.123456 1 x.go:1] {}\n", "x".repeat(2_000));
        let found = texts(&long.repeat(20)).await;
        assert_eq!(found.len(), LINES_MAX);
        assert!(found.iter().all(|line| line.len() <= LINE_BYTES_MAX && line.starts_with("kubelet.log: E1127 ")));
    }

    #[tokio::test]
    async fn link_and_pipe_in_place_of_the_log_are_not_read() {
        let (folder, host) =
            sandbox(&[("/var/lib/rancher/rke2/agent/logs/x", "E1127 00:17:37.123456 1 x.go:1] secret\n")]);
        let log = folder.path().join(LOG.trim_start_matches('/'));
        std::os::unix::fs::symlink("x", &log).unwrap();
        assert_eq!(errors(&context(&host)).await, []);
        std::fs::remove_file(&log).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&log).status().unwrap().success());
        assert_eq!(errors(&context(&host)).await, []);
    }
}
