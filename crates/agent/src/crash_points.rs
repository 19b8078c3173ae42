//! The crash point inside a task: directly after the first change that the task makes to its host, whatever its handler. Without the
//! feature `crash-points` a task gets the host itself.

use std::sync::Arc;

use gpuaas_host::Host;
use gpuaas_model::TaskType;

/// Returns the host that a task of that type uses.
#[cfg(not(feature = "crash-points"))]
pub(crate) fn of_task(host: Arc<dyn Host>, _task: TaskType) -> Arc<dyn Host> {
    host
}

/// Returns the host that a task of that type uses.
#[cfg(feature = "crash-points")]
pub(crate) fn of_task(host: Arc<dyn Host>, task: TaskType) -> Arc<dyn Host> {
    Arc::new(watched::CrashPointHost { host, task })
}

#[cfg(feature = "crash-points")]
mod watched {
    use std::{net::IpAddr, sync::Arc};

    use async_trait::async_trait;
    use camino::Utf8Path;
    use futures::stream::BoxStream;
    use gpuaas_crash_points::{Point, reach};
    use gpuaas_host::{
        Changed, Command, CommandEnd, ContentId, Durable, Facts, FileSpec, Host, HostError, JournalFrom, JournalLine,
        Listener, Process, UnitStatus, survey::Tree,
    };
    use gpuaas_model::TaskType;
    use tokio::io::{AsyncRead, AsyncWrite};

    /// Forwards every call, and reaches the crash point after each call that may have changed the host.
    pub(super) struct CrashPointHost {
        pub(super) host: Arc<dyn Host>,
        pub(super) task: TaskType,
    }

    impl CrashPointHost {
        /// Reaches the crash point after a call that may have changed the host, even if it failed.
        fn after_effect<T>(&self, done: Result<T, HostError>) -> Result<T, HostError> {
            reach(Point::TaskInside(self.task));
            done
        }

        fn after_change(&self, done: Result<Changed, HostError>) -> Result<Changed, HostError> {
            if matches!(done, Ok(Changed::No)) { done } else { self.after_effect(done) }
        }
    }

    #[async_trait]
    impl Host for CrashPointHost {
        async fn write(&self, file: &FileSpec) -> Result<Changed, HostError> {
            self.after_change(self.host.write(file).await)
        }
        async fn read(&self, path: &Utf8Path, bytes_max: u64) -> Result<Option<Vec<u8>>, HostError> {
            self.host.read(path, bytes_max).await
        }
        async fn remove(&self, path: &Utf8Path) -> Result<Changed, HostError> {
            self.after_change(self.host.remove(path).await)
        }
        async fn remove_empty_folder(&self, path: &Utf8Path) -> Result<Changed, HostError> {
            self.after_change(self.host.remove_empty_folder(path).await)
        }
        async fn make_folder(&self, path: &Utf8Path, mode: u32) -> Result<Changed, HostError> {
            self.after_change(self.host.make_folder(path, mode).await)
        }
        async fn exists(&self, path: &Utf8Path) -> Result<bool, HostError> {
            self.host.exists(path).await
        }
        async fn list(&self, path: &Utf8Path) -> Result<Vec<String>, HostError> {
            self.host.list(path).await
        }
        async fn size(&self, path: &Utf8Path) -> Result<Option<u64>, HostError> {
            self.host.size(path).await
        }
        async fn open(&self, path: &Utf8Path) -> Result<Box<dyn AsyncRead + Send + Unpin>, HostError> {
            self.host.open(path).await
        }
        async fn append(&self, path: &Utf8Path) -> Result<Box<dyn AsyncWrite + Send + Unpin>, HostError> {
            self.after_effect(self.host.append(path).await)
        }
        async fn sync(&self, path: &Utf8Path) -> Result<(), HostError> {
            self.host.sync(path).await
        }
        async fn append_bytes(&self, path: &Utf8Path, content: Vec<u8>, durable: Durable) -> Result<(), HostError> {
            self.after_effect(self.host.append_bytes(path, content, durable).await)
        }
        async fn overwrite(
            &self,
            path: &Utf8Path,
            at: u64,
            content: Vec<u8>,
            durable: Durable,
        ) -> Result<(), HostError> {
            self.after_effect(self.host.overwrite(path, at, content, durable).await)
        }
        async fn rename(&self, from: &Utf8Path, to: &Utf8Path) -> Result<(), HostError> {
            self.after_effect(self.host.rename(from, to).await)
        }
        async fn read_verified(&self, path: &Utf8Path, id: ContentId) -> Result<Vec<u8>, HostError> {
            self.host.read_verified(path, id).await
        }
        async fn has_content(&self, path: &Utf8Path, id: ContentId) -> Result<bool, HostError> {
            self.host.has_content(path, id).await
        }
        async fn copy_verified(
            &self,
            from: &Utf8Path,
            to: &Utf8Path,
            mode: u32,
            id: ContentId,
        ) -> Result<Changed, HostError> {
            self.after_change(self.host.copy_verified(from, to, mode, id).await)
        }
        async fn run(&self, command: &Command) -> Result<CommandEnd, HostError> {
            self.after_effect(self.host.run(command).await)
        }
        async fn daemon_reload(&self) -> Result<(), HostError> {
            self.host.daemon_reload().await
        }
        async fn start(&self, unit: &str) -> Result<Changed, HostError> {
            self.after_change(self.host.start(unit).await)
        }
        async fn stop(&self, unit: &str) -> Result<Changed, HostError> {
            self.after_change(self.host.stop(unit).await)
        }
        async fn enable(&self, unit: &str) -> Result<Changed, HostError> {
            self.after_change(self.host.enable(unit).await)
        }
        async fn disable(&self, unit: &str) -> Result<Changed, HostError> {
            self.after_change(self.host.disable(unit).await)
        }
        async fn reset_failed(&self, unit: &str) -> Result<Changed, HostError> {
            self.after_change(self.host.reset_failed(unit).await)
        }
        async fn unit(&self, unit: &str) -> Result<Option<UnitStatus>, HostError> {
            self.host.unit(unit).await
        }
        async fn unit_events(&self, unit: &str) -> Result<BoxStream<'static, UnitStatus>, HostError> {
            self.host.unit_events(unit).await
        }
        async fn journal(
            &self,
            unit: &str,
            from: JournalFrom,
            follow: bool,
        ) -> Result<BoxStream<'static, JournalLine>, HostError> {
            self.host.journal(unit, from, follow).await
        }
        async fn facts(&self) -> Result<Facts, HostError> {
            self.host.facts().await
        }
        fn address(&self) -> IpAddr {
            self.host.address()
        }
        async fn listening(&self, ports: &[u16]) -> Result<Vec<u16>, HostError> {
            self.host.listening(ports).await
        }
        async fn listeners(&self) -> Result<Vec<Listener>, HostError> {
            self.host.listeners().await
        }
        async fn processes(&self, prefixes: &[String]) -> Result<Vec<Process>, HostError> {
            self.host.processes(prefixes).await
        }
        async fn mounts(&self, prefixes: &[String]) -> Result<Vec<String>, HostError> {
            self.host.mounts(prefixes).await
        }
        async fn links(&self) -> Result<Vec<String>, HostError> {
            self.host.links().await
        }
        fn tree(&self) -> Tree {
            self.host.tree()
        }
        async fn set_sysctl(&self, name: &str, value: &str) -> Result<Changed, HostError> {
            self.after_change(self.host.set_sysctl(name, value).await)
        }
        async fn load_module(&self, name: &str) -> Result<Changed, HostError> {
            self.after_change(self.host.load_module(name).await)
        }
        async fn firewall_rules(&self, words: &[String]) -> Result<Option<Vec<String>>, HostError> {
            self.host.firewall_rules(words).await
        }
    }
}
