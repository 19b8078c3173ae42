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
    Arc::new(watched::CrashPointHost::new(host, task))
}

#[cfg(feature = "crash-points")]
mod watched {
    use std::sync::Arc;

    use async_trait::async_trait;
    use camino::{Utf8Path, Utf8PathBuf};
    use futures::stream::BoxStream;
    use gpuaas_crash_points::{Point, reach};
    use gpuaas_host::{
        Changed, Command, CommandEnd, ContentId, Durable, FileSpec, Files, Host, HostError, Inventory, JournalFrom,
        JournalLine, UnitFileState, UnitStatus, Units,
    };
    use gpuaas_model::TaskType;
    use tokio::io::{AsyncRead, AsyncWrite};

    /// Forwards every call, and reaches the crash point after each call that may have changed the host.
    pub(super) struct CrashPointHost {
        files: CrashPointFiles,
        units: CrashPointUnits,
        target: Target,
    }

    struct CrashPointFiles(Target);
    struct CrashPointUnits(Target);

    /// The host, and the task whose crash point its calls reach.
    #[derive(Clone)]
    struct Target {
        host: Arc<dyn Host>,
        task: TaskType,
    }

    impl CrashPointHost {
        pub(super) fn new(host: Arc<dyn Host>, task: TaskType) -> Self {
            let target = Target { host, task };
            Self { files: CrashPointFiles(target.clone()), units: CrashPointUnits(target.clone()), target }
        }
    }

    impl Target {
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
        fn files(&self) -> &dyn Files {
            &self.files
        }
        fn units(&self) -> &dyn Units {
            &self.units
        }
        fn inventory(&self) -> &dyn Inventory {
            self.target.host.inventory()
        }
        async fn run(&self, command: &Command) -> Result<CommandEnd, HostError> {
            self.target.after_effect(self.target.host.run(command).await)
        }
        async fn set_sysctl(&self, name: &str, value: &str) -> Result<Changed, HostError> {
            self.target.after_change(self.target.host.set_sysctl(name, value).await)
        }
        async fn load_module(&self, name: &str) -> Result<Changed, HostError> {
            self.target.after_change(self.target.host.load_module(name).await)
        }
    }

    #[async_trait]
    impl Files for CrashPointFiles {
        async fn write(&self, file: &FileSpec) -> Result<Changed, HostError> {
            self.0.after_change(self.0.host.files().write(file).await)
        }
        async fn read(&self, path: &Utf8Path, bytes_max: u64) -> Result<Option<Vec<u8>>, HostError> {
            self.0.host.files().read(path, bytes_max).await
        }
        async fn remove(&self, path: &Utf8Path) -> Result<Changed, HostError> {
            self.0.after_change(self.0.host.files().remove(path).await)
        }
        async fn remove_empty_folder(&self, path: &Utf8Path) -> Result<Changed, HostError> {
            self.0.after_change(self.0.host.files().remove_empty_folder(path).await)
        }
        async fn make_folder(&self, path: &Utf8Path, mode: u32) -> Result<Changed, HostError> {
            self.0.after_change(self.0.host.files().make_folder(path, mode).await)
        }
        async fn exists(&self, path: &Utf8Path) -> Result<bool, HostError> {
            self.0.host.files().exists(path).await
        }
        async fn list(&self, path: &Utf8Path) -> Result<Vec<String>, HostError> {
            self.0.host.files().list(path).await
        }
        async fn size(&self, path: &Utf8Path) -> Result<Option<u64>, HostError> {
            self.0.host.files().size(path).await
        }
        async fn open(&self, path: &Utf8Path) -> Result<Box<dyn AsyncRead + Send + Unpin>, HostError> {
            self.0.host.files().open(path).await
        }
        async fn append(&self, path: &Utf8Path) -> Result<Box<dyn AsyncWrite + Send + Unpin>, HostError> {
            self.0.after_effect(self.0.host.files().append(path).await)
        }
        async fn sync(&self, path: &Utf8Path) -> Result<(), HostError> {
            self.0.host.files().sync(path).await
        }
        async fn append_bytes(&self, path: &Utf8Path, content: Vec<u8>, durable: Durable) -> Result<(), HostError> {
            self.0.after_effect(self.0.host.files().append_bytes(path, content, durable).await)
        }
        async fn overwrite(
            &self,
            path: &Utf8Path,
            at: u64,
            content: Vec<u8>,
            durable: Durable,
        ) -> Result<(), HostError> {
            self.0.after_effect(self.0.host.files().overwrite(path, at, content, durable).await)
        }
        async fn rename(&self, from: &Utf8Path, to: &Utf8Path) -> Result<(), HostError> {
            self.0.after_effect(self.0.host.files().rename(from, to).await)
        }
        async fn read_verified(&self, path: &Utf8Path, id: ContentId) -> Result<Vec<u8>, HostError> {
            self.0.host.files().read_verified(path, id).await
        }
        async fn has_content(&self, path: &Utf8Path, id: ContentId) -> Result<bool, HostError> {
            self.0.host.files().has_content(path, id).await
        }
        async fn copy_verified(
            &self,
            from: &Utf8Path,
            to: &Utf8Path,
            mode: u32,
            id: ContentId,
        ) -> Result<Changed, HostError> {
            self.0.after_change(self.0.host.files().copy_verified(from, to, mode, id).await)
        }
    }

    #[async_trait]
    impl Units for CrashPointUnits {
        async fn daemon_reload(&self) -> Result<(), HostError> {
            self.0.host.units().daemon_reload().await
        }
        async fn start(&self, unit: &str) -> Result<Changed, HostError> {
            self.0.after_change(self.0.host.units().start(unit).await)
        }
        async fn stop(&self, unit: &str) -> Result<Changed, HostError> {
            self.0.after_change(self.0.host.units().stop(unit).await)
        }
        async fn enable(&self, unit: &str) -> Result<Changed, HostError> {
            self.0.after_change(self.0.host.units().enable(unit).await)
        }
        async fn disable(&self, unit: &str) -> Result<Changed, HostError> {
            self.0.after_change(self.0.host.units().disable(unit).await)
        }
        async fn unmask(&self, unit: &str) -> Result<Changed, HostError> {
            self.0.after_change(self.0.host.units().unmask(unit).await)
        }
        async fn unit_file_state(&self, unit: &str) -> Result<UnitFileState, HostError> {
            self.0.host.units().unit_file_state(unit).await
        }
        fn enablement_paths(&self, unit: &str) -> Vec<Utf8PathBuf> {
            self.0.host.units().enablement_paths(unit)
        }
        async fn reset_failed(&self, unit: &str) -> Result<Changed, HostError> {
            self.0.after_change(self.0.host.units().reset_failed(unit).await)
        }
        async fn unit(&self, unit: &str) -> Result<Option<UnitStatus>, HostError> {
            self.0.host.units().unit(unit).await
        }
        async fn unit_events(&self, unit: &str) -> Result<BoxStream<'static, UnitStatus>, HostError> {
            self.0.host.units().unit_events(unit).await
        }
        async fn journal(
            &self,
            unit: &str,
            from: JournalFrom,
            follow: bool,
        ) -> Result<BoxStream<'static, JournalLine>, HostError> {
            self.0.host.units().journal(unit, from, follow).await
        }
    }
}
