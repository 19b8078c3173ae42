//! Changes of paths, by inotify.
//!
//! Guarantees: no change is missed from the moment at which the watch begins, also of a path whose folders do not exist yet or are replaced:
//! every folder along a path is watched for the next name. No link is followed. Memory and watches are bounded by the paths; watches of
//! replaced folders are removed.
//!
//! Deliberately absent: what changed. The observer looks at the files themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use camino::{Utf8Path, Utf8PathBuf};
use futures::stream::{self, BoxStream, StreamExt};
use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    io::Errno,
};
use tokio::io::{Interest, unix::AsyncFd};

use crate::{error::HostError, root::Root};

/// Most paths of one watch.
pub const WATCHED_PATHS_MAX: usize = 16;
/// Most events that are read before other tasks of the thread run.
const EVENTS_AT_ONCE: usize = 1_024;
/// A buffer for at least one event with the longest name.
const BUFFER_BYTES: usize = 4_096;
/// Changes of names and of their content. A file that is open for writing has changed when it is closed.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR);

/// Returns a stream that yields after changes of these paths, or of something in them if they are folders.
pub(crate) fn changes(root: &Root, paths: &[Utf8PathBuf]) -> Result<BoxStream<'static, ()>, HostError> {
    let Some(first) = paths.first().filter(|_| paths.len() <= WATCHED_PATHS_MAX) else {
        return Err(HostError::file("watch", Utf8Path::new("/"))(std::io::ErrorKind::InvalidInput.into()));
    };
    let fail = |error: Errno| HostError::file("watch", first)(error.into());
    let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(fail)?;
    #[expect(
        deprecated,
        reason = "an `OwnedFd` keeps its descriptor, which this constructor cannot check of other types; its successor is unsafe"
    )]
    let inotify = AsyncFd::with_interest(descriptor, Interest::READABLE).map_err(HostError::file("watch", first))?;
    let mut watch = Watch { root: root.clone(), paths: paths.to_vec(), inotify, folders: BTreeMap::new() };
    watch.renew()?;
    Ok(stream::unfold(watch, |mut watch| async move { watch.next().await.map(|()| ((), watch)) }).boxed())
}

struct Watch {
    root: Root,
    paths: Vec<Utf8PathBuf>,
    inotify: AsyncFd<OwnedFd>,
    /// The watched folders, by the number of their watch.
    folders: BTreeMap<i32, Names>,
}

/// The names in a folder whose changes count.
#[derive(Default)]
struct Names {
    every: bool,
    some: BTreeSet<String>,
}

/// What one reading of events found.
#[derive(Clone, Copy)]
struct Events {
    has_change: bool,
    /// True if no event is left.
    is_last: bool,
}

impl Watch {
    /// Watches the folders that the paths have now, and no other.
    fn renew(&mut self) -> Result<(), HostError> {
        let mut folders: BTreeMap<i32, Names> = BTreeMap::new();
        for path in &self.paths {
            let watch = |folder: BorrowedFd<'_>, name: Option<&str>| {
                // The folder itself, whatever happens to its name meanwhile.
                let place = format!("/proc/self/fd/{}", folder.as_raw_fd());
                let number = inotify::add_watch(self.inotify.get_ref(), place, CHANGES);
                let names = folders.entry(number.map_err(|error| HostError::file("watch", path)(error.into()))?);
                let names = names.or_default();
                names.every |= name.is_none();
                names.some.extend(name.map(str::to_owned));
                Ok(())
            };
            self.root.walk(path, watch)?;
        }
        for number in self.folders.keys().filter(|number| !folders.contains_key(number)) {
            // The kernel has removed the watch of a folder that no longer exists.
            let _ = inotify::remove_watch(self.inotify.get_ref(), *number);
        }
        self.folders = folders;
        Ok(())
    }

    /// Waits for the next change; `None` if the paths can no longer be watched.
    async fn next(&mut self) -> Option<()> {
        loop {
            let mut ready = self.inotify.readable().await.ok()?;
            let events = read(self.inotify.get_ref(), &self.folders).ok()?;
            if events.is_last {
                ready.clear_ready();
            }
            drop(ready);
            if events.has_change {
                // Before the caller looks: what changes afterwards is an event.
                let renewed = self.renew();
                return renewed.inspect_err(|error| tracing::warn!(%error, "files are no longer watched")).ok();
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Reads the events that wait.
fn read(inotify: &OwnedFd, folders: &BTreeMap<i32, Names>) -> Result<Events, Errno> {
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut reader = Reader::new(inotify, &mut buffer);
    let mut has_change = false;
    let mut count = 0;
    // Events that are left in the buffer would be lost.
    while count < EVENTS_AT_ONCE || !reader.is_buffer_empty() {
        count += 1;
        let event = match reader.next() {
            Ok(event) => event,
            Err(Errno::AGAIN) => return Ok(Events { has_change, is_last: true }),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
        };
        let is_named = |names: &Names| {
            let name = event.file_name().and_then(|name| name.to_str().ok());
            names.every || name.is_some_and(|name| names.some.contains(name))
        };
        // After an overflow, any change can have been lost.
        has_change |= event.events().contains(ReadFlags::QUEUE_OVERFLOW)
            || folders.get(&event.wd()).is_some_and(is_named) && !event.events().contains(ReadFlags::IGNORED);
    }
    Ok(Events { has_change, is_last: false })
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;

    struct Folder {
        folder: tempfile::TempDir,
        changes: BoxStream<'static, ()>,
    }

    impl Folder {
        fn watched(paths: &[&str]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = Utf8PathBuf::from_path_buf(folder.path().canonicalize().unwrap()).unwrap();
            let paths: Vec<Utf8PathBuf> = paths.iter().map(Utf8PathBuf::from).collect();
            fs::create_dir(root.join("etc")).unwrap();
            Self { changes: changes(&Root::new(root), &paths).unwrap(), folder }
        }

        fn path(&self, path: &str) -> std::path::PathBuf {
            self.folder.path().join(path)
        }

        /// Returns true if a change is reported. The events of a change are there when the call that makes it has returned, so no change
        /// comes later.
        async fn has_changed(&mut self) -> bool {
            let next = tokio::time::timeout(Duration::from_millis(50), self.changes.next()).await;
            next.is_ok_and(|change| change.is_some())
        }
    }

    #[tokio::test]
    async fn changes_of_watched_names_are_reported_and_others_are_not() {
        let mut of = Folder::watched(&["/etc/config.yaml"]);
        assert!(!of.has_changed().await);
        fs::write(of.path("etc/other.yaml"), "x").unwrap();
        assert!(!of.has_changed().await, "another file of the folder");
        fs::write(of.path("etc/config.yaml"), "x").unwrap();
        assert!(of.has_changed().await, "created");
        fs::read(of.path("etc/config.yaml")).unwrap();
        assert!(!of.has_changed().await, "a reader changes nothing");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(of.path("etc/config.yaml"), mode).unwrap();
        assert!(of.has_changed().await, "another mode");
        fs::rename(of.path("etc/other.yaml"), of.path("etc/config.yaml")).unwrap();
        assert!(of.has_changed().await, "replaced");
        fs::remove_file(of.path("etc/config.yaml")).unwrap();
        assert!(of.has_changed().await, "removed");
    }

    #[tokio::test]
    async fn folders_that_are_created_or_replaced_later_are_watched() {
        let mut of = Folder::watched(&["/etc/rancher/rke2/token"]);
        fs::create_dir_all(of.path("etc/rancher/rke2")).unwrap();
        assert!(of.has_changed().await, "a folder along the path");
        fs::write(of.path("etc/rancher/rke2/token"), "x").unwrap();
        assert!(of.has_changed().await, "the file in the new folder");
        fs::rename(of.path("etc/rancher"), of.path("etc/moved")).unwrap();
        assert!(of.has_changed().await, "moved away");
        fs::write(of.path("etc/moved/rke2/token"), "y").unwrap();
        assert!(!of.has_changed().await, "the moved folder is not the path any more");
        fs::rename(of.path("etc/moved"), of.path("etc/rancher")).unwrap();
        assert!(of.has_changed().await, "moved back");
        fs::write(of.path("etc/rancher/rke2/token"), "z").unwrap();
        assert!(of.has_changed().await);
    }

    #[tokio::test]
    async fn every_name_in_a_watched_folder_counts_and_no_link_is_followed() {
        let mut of = Folder::watched(&["/etc/config.yaml.d"]);
        fs::create_dir(of.path("outside")).unwrap();
        std::os::unix::fs::symlink("../outside", of.path("etc/config.yaml.d")).unwrap();
        assert!(of.has_changed().await, "the link itself");
        fs::write(of.path("outside/90.yaml"), "x").unwrap();
        assert!(!of.has_changed().await, "the target of the link");
        fs::remove_file(of.path("etc/config.yaml.d")).unwrap();
        fs::create_dir(of.path("etc/config.yaml.d")).unwrap();
        assert!(of.has_changed().await);
        fs::write(of.path("etc/config.yaml.d/90.yaml"), "x").unwrap();
        assert!(of.has_changed().await, "a file in the folder");
    }

    #[tokio::test]
    async fn change_behind_a_flood_of_others_is_reported_once() {
        let mut of = Folder::watched(&["/etc/config.yaml"]);
        for number in 0..3_000 {
            // The kernel merges equal events that follow each other.
            fs::write(of.path(&format!("etc/{}.yaml", number % 2)), "x").unwrap();
        }
        assert!(!of.has_changed().await, "other files");
        for number in 0..3_000 {
            fs::write(of.path(&format!("etc/{}.yaml", number % 2)), "x").unwrap();
        }
        fs::write(of.path("etc/config.yaml"), "x").unwrap();
        assert!(of.has_changed().await);
        assert!(!of.has_changed().await);
        fs::write(of.path("etc/config.yaml"), "y").unwrap();
        assert!(of.has_changed().await);
    }

    #[tokio::test]
    async fn number_of_paths_is_bounded() {
        let root = Root::new(Utf8PathBuf::from("/"));
        assert!(changes(&root, &[]).is_err());
        assert!(changes(&root, &vec![Utf8PathBuf::from("/etc/x"); WATCHED_PATHS_MAX + 1]).is_err());
    }
}
