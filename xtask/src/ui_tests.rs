//! Tests of the workload shell: its form and logic, and its pages in Debian's Chromium against a real `gpuaas dev` and against made-up data.
//! The same programs take screenshots and measurements.
//!
//! Deliberately absent: the tests themselves, which Playwright runs (`ui/tests`).

mod chromium;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::Value;

use crate::{
    components,
    package::programs,
    release::{self, ReleaseOptions},
    shell, tools, ui,
};

/// Kind under which tests in the browser are counted.
pub(crate) const KIND: &str = "browser";
/// Kind under which tests of the shell's logic are counted.
pub(crate) const LOGIC: &str = "shell, logic";
/// Number of tests that passed, by kind.
pub(crate) type Passed = Vec<(&'static str, u32)>;

/// Most bytes of the pictures in `README.md` and the documents.
const PICTURES_MAX: u64 = 300_000;
/// Folder of these pictures.
const PICTURES: &str = "docs/images";

/// Options of `cargo xtask ui-tests`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Arguments for Playwright, for example a part of a file's name, or `--grep TEXT`.
    #[arg(last = true)]
    playwright: Vec<String>,
}

/// Programs and folders that the tests use.
pub(crate) struct Tools {
    programs: Utf8PathBuf,
    release: Utf8PathBuf,
    kubectl: Utf8PathBuf,
    chromium: PathBuf,
    output: PathBuf,
}

impl Tools {
    /// Builds what is missing. Fails where the tests cannot run.
    pub(crate) fn of(programs: Utf8PathBuf, profile: &str, output: &str) -> anyhow::Result<Self> {
        let chromium = prepare()?.map_err(|why| anyhow::anyhow!("the shell cannot be tested here: {why}"))?;
        Self::with(programs, profile, chromium, output)
    }

    fn with(programs: Utf8PathBuf, profile: &str, chromium: PathBuf, output: &str) -> anyhow::Result<Self> {
        let options = components::ComponentsOptions { download: false, dir: None };
        let components = components::ensure(&options, components::Part::ControlPlane)?;
        let kubectl = components.program("kubectl");
        let options = ReleaseOptions { components, node: None, rke2: None, profile: profile.to_owned(), out: None };
        let release = release::build(&options)?;
        let output = shell::target().join(output);
        fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
        Ok(Self { programs, release, kubectl, chromium, output })
    }

    /// Runs Playwright in the folder of the tests.
    pub(crate) fn playwright(&self, what: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(folder().join("node_modules/.bin/playwright"));
        command.arg("test").args(arguments).current_dir(folder()).envs([
            ("UI_PROGRAM", self.programs.join("gpuaas").as_os_str()),
            ("UI_RELEASE", self.release.as_os_str()),
            ("UI_KUBECTL", self.kubectl.as_os_str()),
            ("UI_CHROMIUM", self.chromium.as_os_str()),
            ("UI_OUTPUT", self.output.as_os_str()),
        ]);
        shell::run(what, &mut command)
    }

    /// Reads a JSON document that the tests wrote.
    pub(crate) fn written(&self, name: &str) -> anyhow::Result<Value> {
        read_json(&self.output.join(name))
    }
}

/// Runs `cargo xtask ui-tests`.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    ui::build_if_possible()?;
    let tools = Tools::of(programs::folder("dev")?, "dev", "ui-tests")?;
    let arguments: Vec<&str> = options.playwright.iter().map(String::as_str).collect();
    tools.playwright("testing the shell in Chromium", &arguments)
}

/// Checks the form of the shell and tests its logic. Returns the number of tests that passed, or the reason why none ran.
pub(crate) fn check() -> anyhow::Result<Result<Passed, String>> {
    if let Err(why) = install_packages(&lock()?)? {
        return Ok(Err(why));
    }
    let npm = |script: &str| {
        let mut npm = Command::new("npm");
        npm.args(["run", "--silent", script]).current_dir(ui::folder());
        npm
    };
    for script in ["api:check", "format:check", "lint", "types"] {
        shell::run(&format!("checking the shell: {script}"), &mut npm(script))?;
    }
    let report = shell::target().join("ui-logic.json");
    let mut logic = npm("test");
    logic.args(["--", "--reporter=json", "--outputFile"]).arg(&report);
    shell::run("testing the logic of the shell", &mut logic)?;
    Ok(Ok(vec![(LOGIC, count(&read_json(&report)?, "/numPassedTests")?)]))
}

/// Tests the pages in Chromium. Returns the number of tests that passed, or the reason why none ran.
pub(crate) fn test() -> anyhow::Result<Result<Passed, String>> {
    let chromium = match prepare()? {
        Ok(chromium) => chromium,
        Err(why) => return Ok(Err(why)),
    };
    let tools = Tools::with(programs::folder("dev")?, "dev", chromium, "ui-tests")?;
    tools.playwright("testing the shell in Chromium", &[])?;
    Ok(Ok(vec![(KIND, count(&tools.written("report.json")?, "/stats/expected")?)]))
}

fn read_json(path: &Path) -> anyhow::Result<Value> {
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))
}

fn count(report: &Value, at: &str) -> anyhow::Result<u32> {
    let number = report.pointer(at).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    number.with_context(|| format!("the report has no number at {at}"))
}

/// Installs packages and, as root, Chromium. Returns the path of Chromium, or the reason why the tests cannot run here.
pub(crate) fn prepare() -> anyhow::Result<Result<PathBuf, String>> {
    let locked = lock()?;
    Ok(install_packages(&locked)?.and_then(|()| chromium::ensure()))
}

/// Waits until no other thread prepares the tests.
fn lock() -> anyhow::Result<fs::File> {
    fs::create_dir_all(shell::target())?;
    let file = fs::File::create(shell::target().join("ui-tests.lock"))?;
    file.lock()?;
    Ok(file)
}

/// Installs the packages of the shell and of its tests. Returns the reason why that is impossible here.
fn install_packages(_locked: &fs::File) -> anyhow::Result<Result<(), String>> {
    if !ui::has_node() {
        return Ok(Err("Node.js 20 with npm was not found".to_owned()));
    }
    match ui::install(&ui::folder()).and_then(|()| ui::install(&folder())) {
        Err(failed) if tools::can_reach(&tools::NPM) => Err(failed),
        Err(failed) => Ok(Err(format!("the packages cannot be downloaded: {failed:#}"))),
        Ok(()) => Ok(Ok(())),
    }
}

/// Runs `cargo xtask screenshots`: every page in both themes at three widths, and the pictures of the documents.
pub(crate) fn screenshots() -> anyhow::Result<()> {
    ui::build_if_possible()?;
    let tools = Tools::of(programs::folder("dev")?, "dev", "screenshots")?;
    tools.playwright("taking screenshots", &["--config", "screenshots.config.ts"])?;
    let root = Utf8Path::from_path(shell::root()).context("the checkout's path is not UTF-8")?;
    let size = size_of_pictures(&root.join(PICTURES))?;
    ensure!(size <= PICTURES_MAX, "the pictures in {PICTURES} have {size} bytes, more than {PICTURES_MAX}");
    println!("{}", tools.output.display());
    Ok(())
}

fn size_of_pictures(folder: &Utf8Path) -> anyhow::Result<u64> {
    let mut size = 0;
    for entry in folder.read_dir_utf8().with_context(|| folder.to_string())? {
        size += entry?.metadata()?.len();
    }
    Ok(size)
}

/// Folder of the browser tests.
pub(crate) fn folder() -> PathBuf {
    ui::folder().join("tests")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_of_tests_are_read_from_reports() {
        let report = json!({ "stats": { "expected": 31, "unexpected": 0 } });
        assert_eq!(count(&report, "/stats/expected").unwrap(), 31);
        assert!(count(&report, "/stats/passed").unwrap_err().to_string().contains("/stats/passed"));
    }
}
