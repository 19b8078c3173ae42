//! Resources used by a control plane and its database, from the kernel and `/metrics`.

use std::{fs, ops::Sub};

use anyhow::Context;
use camino::Utf8Path;

use super::figures::Figure;

/// Resources used by processes since their start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// CPU time in user mode, in milliseconds; the kernel counts in steps of 10.
    pub(super) user_ms: f64,
    /// CPU time in kernel mode, in milliseconds.
    pub(super) system_ms: f64,
    /// Voluntary context switches of the living threads.
    switches: f64,
    /// Write calls, including `write` and `writev` to sockets.
    write_calls: f64,
    /// Bytes sent towards the disk.
    disk_bytes: f64,
}

impl Usage {
    fn plus(self, other: Self) -> Self {
        Self {
            user_ms: self.user_ms + other.user_ms,
            system_ms: self.system_ms + other.system_ms,
            switches: self.switches + other.switches,
            write_calls: self.write_calls + other.write_calls,
            disk_bytes: self.disk_bytes + other.disk_bytes,
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            user_ms: self.user_ms - before.user_ms,
            system_ms: self.system_ms - before.system_ms,
            switches: self.switches - before.switches,
            write_calls: self.write_calls - before.write_calls,
            disk_bytes: self.disk_bytes - before.disk_bytes,
        }
    }
}

/// Database work of the store since the control plane started. NaN for programs that predate these counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) statements: f64,
    changes: f64,
    commits: f64,
}

impl Counts {
    /// Reads the counters from `/metrics`. A program exposes either all of them, or none if it predates them.
    pub(super) fn from_metrics(text: &str) -> anyhow::Result<Self> {
        const NONE: Counts = Counts { statements: f64::NAN, changes: f64::NAN, commits: f64::NAN };
        if !text.contains("gpuaas_store_statements_total") {
            return Ok(NONE);
        }
        let count = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
            value.with_context(|| format!("/metrics has no {name}"))
        };
        Ok(Self {
            statements: count("gpuaas_store_statements_total")?,
            changes: count("gpuaas_store_changes_total")?,
            commits: count("gpuaas_store_commits_total")?,
        })
    }
}

/// All measurements of one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) server: Usage,
    pub(super) database: Usage,
    pub(super) counts: Counts,
}

impl Sub for Sample {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let (now, then) = (self.counts, before.counts);
        Self {
            server: self.server - before.server,
            database: self.database - before.database,
            counts: Counts {
                statements: now.statements - then.statements,
                changes: now.changes - then.changes,
                commits: now.commits - then.commits,
            },
        }
    }
}

impl Sample {
    /// Figures of a difference, divided by the number of things done meanwhile.
    pub(super) fn figures(&self, done: usize) -> Vec<Figure> {
        let each = |what: &str, unit, value: f64| Figure::new(what, unit, value / done.max(1) as f64);
        vec![
            each("server, processor time, user", "ms", self.server.user_ms),
            each("server, processor time, system", "ms", self.server.system_ms),
            each("database server, processor time", "ms", self.database.user_ms + self.database.system_ms),
            each("server, voluntary context switches", "", self.server.switches),
            each("server, write calls", "", self.server.write_calls),
            each("server, written towards the disk", "B", self.server.disk_bytes),
            each("database server, written towards the disk", "B", self.database.disk_bytes),
            each("SQL statements", "", self.counts.statements),
            each("changes", "", self.counts.changes),
            each("commits by the database", "", self.counts.commits),
        ]
    }
}

/// Resources used by a process.
pub(super) fn of_process(pid: i32) -> anyhow::Result<Usage> {
    let (user, system) = processor_ticks(&stat(pid)?, false).context("/proc/PID/stat has no processor times")?;
    usage(pid, user, system)
}

/// Resources used by a process, its children and its ended children.
pub(super) fn of_family(pid: i32) -> anyhow::Result<Usage> {
    let (user, system) = processor_ticks(&stat(pid)?, true).context("/proc/PID/stat has no processor times")?;
    let mut total = usage(pid, user, system)?;
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A child that ends meanwhile is counted by its parent.
        if stat(child).is_ok_and(|stat| parent(&stat) == Some(pid)) {
            total = total.plus(of_process(child).unwrap_or_default());
        }
    }
    Ok(total)
}

/// Resident bytes of a process.
pub(super) fn resident_bytes(pid: i32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages: f64 = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .context("/proc/PID/statm has no number of pages")?;
    Ok(pages * rustix::param::page_size() as f64)
}

/// Resident bytes of all processes that run a program.
pub(super) fn resident_bytes_of(program: &Utf8Path) -> anyhow::Result<f64> {
    let program = program.canonicalize()?;
    let entries = fs::read_dir("/proc")?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let of_program = pids.filter(|pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program));
    // Processes that end meanwhile count as 0.
    Ok(of_program.map(|pid| resident_bytes(pid).unwrap_or_default()).sum())
}

fn usage(pid: i32, user: f64, system: f64) -> anyhow::Result<Usage> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).with_context(|| format!("reading /proc/{pid}/io"))?;
    let ms_per_tick = 1_000.0 / rustix::param::clock_ticks_per_second() as f64;
    Ok(Usage {
        user_ms: user * ms_per_tick,
        system_ms: system * ms_per_tick,
        switches: voluntary_switches(pid)?,
        write_calls: named(&io, "syscw:").unwrap_or_default(),
        disk_bytes: named(&io, "write_bytes:").unwrap_or_default(),
    })
}

fn voluntary_switches(pid: i32) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        // Threads that end meanwhile count as 0.
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        sum += named(&status, "voluntary_ctxt_switches:").unwrap_or_default();
    }
    Ok(sum)
}

/// Fields of `/proc/PID/stat` after the command name, which may contain anything.
fn stat(pid: i32) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = text.rsplit_once(')').context("/proc/PID/stat has no command name")?;
    Ok(fields.split_whitespace().map(str::to_owned).collect())
}

fn parent(stat: &[String]) -> Option<i32> {
    stat.get(1)?.parse().ok()
}

/// CPU ticks in user and kernel mode, optionally including ended children.
fn processor_ticks(stat: &[String], with_children: bool) -> Option<(f64, f64)> {
    let field = |at: usize| stat.get(at)?.parse::<f64>().ok();
    let (user, system) = (field(11)?, field(12)?);
    if with_children { Some((user + field(13)?, system + field(14)?)) } else { Some((user, system)) }
}

fn named(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_an_exposition_and_a_missing_one_is_named() {
        let text = "# TYPE gpuaas_store_changes_total counter\ngpuaas_store_changes_total 4\n\
                    gpuaas_store_statements_total 12\ngpuaas_store_commits_total 3\n";
        let counts = Counts::from_metrics(text).unwrap();
        assert_eq!((counts.statements, counts.changes, counts.commits), (12.0, 4.0, 3.0));
        let error = Counts::from_metrics(&text.replace("commits", "other")).unwrap_err();
        assert_eq!(error.to_string(), "/metrics has no gpuaas_store_commits_total");
        assert!(Counts::from_metrics("gpuaas_up 1\n").unwrap().commits.is_nan(), "a program without these counters");
    }
}
