//! The lab's state file: one line each for the lab's shape and for everything that the lab is about to create.
//!
//! Guarantees: a line is written before the creation of what it names begins, so after a crash the file names everything that may exist. A
//! line cut off by a crash is ignored: its creation had not begun.
//!
//! Deliberately absent: the condition of nodes (ask their supervisors) and what was really created (ask the kernel).

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
};

use anyhow::{Context, ensure};
use camino::Utf8Path;
use serde::{Deserialize, Serialize};

use super::{name::NodeName, network::Subnet, place, refusal::Refusal, resource::Resource};

/// The properties of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Kind of the nodes.
    pub(crate) kind: String,
    /// Names of the nodes, in order.
    pub(crate) nodes: Vec<NodeName>,
    /// Network of the nodes.
    pub(crate) subnet: Subnet,
}

impl Shape {
    /// Names of the nodes as text for people.
    pub(super) fn names(&self) -> String {
        self.nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// First line of the file.
    Lab(Shape),
    /// What is created next.
    Making(Resource),
    /// Everything is created, and every node has booted.
    Up,
}

/// Writer of the state file.
pub(super) struct Journal {
    file: File,
}

impl Journal {
    /// Creates the state file for a lab of this shape; fails if one exists.
    pub(super) fn begin(shape: &Shape) -> anyhow::Result<Self> {
        let path = place::state_file();
        fs::create_dir_all(place::RUN).context(place::RUN)?;
        // Only root may access sockets and consoles of nodes.
        fs::set_permissions(place::RUN, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        let file = OpenOptions::new().append(true).create_new(true).open(&path).with_context(|| path.to_string())?;
        let mut journal = Self { file };
        journal.write(&Line::Lab(shape.clone()))?;
        Ok(journal)
    }

    /// Opens the state file of the existing lab for appending.
    pub(super) fn reopen() -> anyhow::Result<Self> {
        let path = place::state_file();
        let file = OpenOptions::new().append(true).open(&path).with_context(|| path.to_string())?;
        Ok(Self { file })
    }

    /// Records that `resource` is created next.
    pub(super) fn record(&mut self, resource: Resource) -> anyhow::Result<()> {
        self.write(&Line::Making(resource))
    }

    /// Records that the lab is complete.
    pub(super) fn record_up(&mut self) -> anyhow::Result<()> {
        self.write(&Line::Up)
    }

    fn write(&mut self, line: &Line) -> anyhow::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        // A single write, so that a line is appended as a whole.
        self.file.write_all(text.as_bytes()).context("writing the lab's state file")
    }
}

/// Content of a state file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Properties of the lab.
    pub(crate) shape: Shape,
    /// Everything whose creation has begun, in order.
    pub(super) resources: Vec<Resource>,
    /// Whether everything was created.
    pub(super) is_up: bool,
}

impl State {
    /// Reads the state of the existing lab, complete or not.
    pub(super) fn read() -> anyhow::Result<Option<Self>> {
        Self::read_from(&place::state_file())
    }

    /// Reads the state of a complete lab; refuses an incomplete one.
    pub(super) fn read_complete() -> anyhow::Result<Self> {
        let state = Self::read()?.ok_or(Refusal::NoLab)?;
        ensure!(state.is_up, Refusal::Remains("an incomplete lab".to_owned()));
        Ok(state)
    }

    fn read_from(path: &Utf8Path) -> anyhow::Result<Option<Self>> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).with_context(|| path.to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.to_string()),
        }
    }

    /// Returns None if a crash cut off the first line.
    fn parse(text: &str) -> anyhow::Result<Option<Self>> {
        let complete_lines = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = complete_lines.lines();
        let Some(first) = lines.next() else { return Ok(None) };
        let Line::Lab(shape) = serde_json::from_str(first)? else {
            anyhow::bail!("the first line does not describe a lab");
        };
        let mut state = Self { shape, resources: Vec::new(), is_up: false };
        for line in lines {
            match serde_json::from_str(line)? {
                Line::Lab(_) => anyhow::bail!("the file describes two labs"),
                Line::Making(resource) => state.resources.push(resource),
                Line::Up => state.is_up = true,
            }
        }
        Ok(Some(state))
    }

    /// Returns the index of the node with this name.
    pub(super) fn index_of(&self, node: &NodeName) -> Result<usize, Refusal> {
        let found = self.shape.nodes.iter().position(|name| name == node);
        found.ok_or_else(|| Refusal::NoNode { requested: node.clone(), existing: self.shape.names() })
    }
}

/// Records `path` and those of its parents that do not exist yet. The lab removes them when they are empty, no matter which program creates
/// them.
pub(super) fn new_folder(journal: &mut Journal, path: &Utf8Path) -> anyhow::Result<()> {
    let missing = path.ancestors().take_while(|folder| !folder.exists());
    missing.map(Utf8Path::to_owned).try_for_each(|folder| journal.record(Resource::Folder(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let shape = Shape {
            kind: "nspawn".to_owned(),
            nodes: vec![NodeName::numbered(1)],
            subnet: Subnet::candidates().next().expect("at least one candidate"),
        };
        let lines = [Line::Lab(shape), Line::Making(Resource::Link("gpulab0".to_owned())), Line::Up];
        lines.iter().map(|line| serde_json::to_string(line).expect("a line is serialised") + "\n").collect()
    }

    #[test]
    fn written_state_is_read_back() {
        let state = State::parse(&text()).expect("the text is valid").expect("the text has a lab");
        assert_eq!((state.resources.len(), state.is_up, state.shape.names().as_str()), (1, true, "node-1"));
    }

    #[test]
    fn state_file_cut_anywhere_is_readable() {
        let text = text();
        for end in 0..text.len() {
            let state = State::parse(&text[..end]).expect("a cut text is valid");
            let complete_lines = text[..end].matches('\n').count();
            assert_eq!(
                state.map(|state| (state.resources.len(), state.is_up)),
                [None, Some((0, false)), Some((1, false))][complete_lines]
            );
        }
    }

    #[test]
    fn malformed_state_file_is_refused() {
        assert!(State::parse("\"up\"\n").is_err());
        assert!(State::parse("nonsense\n").is_err());
        let twice = text().lines().next().expect("a line").to_owned() + "\n";
        assert!(State::parse(&twice.repeat(2)).is_err());
    }
}
