//! The lab's state file: what it is, and what it is about to make, a line each.
//!
//! Guarantees: a line is in the file before what it names is begun, so that whoever reads it after a death knows all that may be there. A line that
//! was cut off by a death is passed over: nothing had come of it.
//!
//! Deliberately absent: how nodes fare (their supervisors know), and what has really been made (the world knows).

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
};

use anyhow::{Context, ensure};
use camino::Utf8Path;
use serde::{Deserialize, Serialize};

use super::{name::NodeName, network::Subnet, place, refusal::Refusal, thing::Thing};

/// What a lab is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// The kind of its nodes.
    pub(crate) kind: String,
    /// Its nodes, in order.
    pub(crate) nodes: Vec<NodeName>,
    /// Their network.
    pub(crate) subnet: Subnet,
}

impl Shape {
    /// The nodes, for people.
    pub(super) fn names(&self) -> String {
        self.nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The first.
    Lab(Shape),
    /// What is made next.
    Making(Thing),
    /// Everything is made, and every node has booted.
    Up,
}

/// Writes the state file.
pub(super) struct Journal {
    file: File,
}

impl Journal {
    /// Begins one for a lab of this shape; there must be none.
    pub(super) fn begin(shape: &Shape) -> anyhow::Result<Self> {
        let path = place::state_file();
        fs::create_dir_all(place::RUN).context(place::RUN)?;
        // Sockets and consoles of nodes are root's alone.
        fs::set_permissions(place::RUN, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        let file = OpenOptions::new().append(true).create_new(true).open(&path).with_context(|| path.to_string())?;
        let mut journal = Self { file };
        journal.write(&Line::Lab(shape.clone()))?;
        Ok(journal)
    }

    /// Goes on with that of the lab that is there.
    pub(super) fn go_on() -> anyhow::Result<Self> {
        let path = place::state_file();
        let file = OpenOptions::new().append(true).open(&path).with_context(|| path.to_string())?;
        Ok(Self { file })
    }

    /// Says that this is made next.
    pub(super) fn making(&mut self, thing: Thing) -> anyhow::Result<()> {
        self.write(&Line::Making(thing))
    }

    /// Says that the lab is whole.
    pub(super) fn up(&mut self) -> anyhow::Result<()> {
        self.write(&Line::Up)
    }

    fn write(&mut self, line: &Line) -> anyhow::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        // One write: it is there or it is not.
        self.file.write_all(text.as_bytes()).context("writing the lab's state file")
    }
}

/// What a state file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// What the lab is.
    pub(crate) shape: Shape,
    /// What was begun, in its order.
    pub(super) things: Vec<Thing>,
    /// Whether all of it was made.
    pub(super) is_up: bool,
}

impl State {
    /// That of the lab that is there, in whatever state.
    pub(super) fn read() -> anyhow::Result<Option<Self>> {
        Self::read_from(&place::state_file())
    }

    /// That of a lab that is whole.
    pub(super) fn up() -> anyhow::Result<Self> {
        let state = Self::read()?.ok_or(Refusal::NoLab)?;
        ensure!(state.is_up, Refusal::Ruins("a lab that was not finished".to_owned()));
        Ok(state)
    }

    fn read_from(path: &Utf8Path) -> anyhow::Result<Option<Self>> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).with_context(|| path.to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.to_string()),
        }
    }

    /// None where a death came before the first line was whole.
    fn parse(text: &str) -> anyhow::Result<Option<Self>> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = whole.lines();
        let Some(first) = lines.next() else { return Ok(None) };
        let Line::Lab(shape) = serde_json::from_str(first)? else {
            anyhow::bail!("the first line names no lab");
        };
        let mut state = Self { shape, things: Vec::new(), is_up: false };
        for line in lines {
            match serde_json::from_str(line)? {
                Line::Lab(_) => anyhow::bail!("a second lab in one file"),
                Line::Making(thing) => state.things.push(thing),
                Line::Up => state.is_up = true,
            }
        }
        Ok(Some(state))
    }

    /// The node of that name.
    pub(super) fn index_of(&self, node: &NodeName) -> Result<usize, Refusal> {
        let found = self.shape.nodes.iter().position(|name| name == node);
        found.ok_or_else(|| Refusal::NoNode { asked: node.clone(), there: self.shape.names() })
    }
}

/// Says of a folder and of those above it which are not there yet: whoever makes them, the lab removes them when they are empty.
pub(super) fn new_folder(journal: &mut Journal, path: &Utf8Path) -> anyhow::Result<()> {
    let missing = path.ancestors().take_while(|folder| !folder.exists());
    missing.map(Utf8Path::to_owned).try_for_each(|folder| journal.making(Thing::Folder(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let shape = Shape {
            kind: "nspawn".to_owned(),
            nodes: vec![NodeName::numbered(1)],
            subnet: Subnet::candidates().next().expect("there is one"),
        };
        let lines = [Line::Lab(shape), Line::Making(Thing::Link("gpulab0".to_owned())), Line::Up];
        lines.iter().map(|line| serde_json::to_string(line).expect("it has a form") + "\n").collect()
    }

    #[test]
    fn what_was_written_is_read() {
        let state = State::parse(&text()).expect("it is whole").expect("it is there");
        assert_eq!((state.things.len(), state.is_up, state.shape.names().as_str()), (1, true, "node-1"));
    }

    #[test]
    fn a_state_file_can_be_cut_anywhere() {
        let text = text();
        for end in 0..text.len() {
            let state = State::parse(&text[..end]).expect("a cut is no fault");
            let whole = text[..end].matches('\n').count();
            assert_eq!(
                state.map(|state| (state.things.len(), state.is_up)),
                [None, Some((0, false)), Some((1, false))][whole]
            );
        }
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        assert!(State::parse("\"up\"\n").is_err());
        assert!(State::parse("nonsense\n").is_err());
        let twice = text().lines().next().expect("a line").to_owned() + "\n";
        assert!(State::parse(&twice.repeat(2)).is_err());
    }
}
