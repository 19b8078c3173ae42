//! Embeds the error pages of `docs/errors`, so that the control plane serves and the command line prints them without any file.

use std::{env, fmt::Write as _, fs, path::Path};

fn main() {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../docs/errors");
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(&folder).expect("docs/errors exists");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("docs/errors is readable").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    let mut pages = "&[\n".to_owned();
    for file in &files {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("names are codes");
        writeln!(pages, "    ({name:?}, include_str!({:?})),", file.display().to_string()).expect("memory");
    }
    pages.push(']');
    let findings = folder.with_file_name("findings.md");
    println!("cargo::rerun-if-changed={}", findings.display());
    println!("cargo::rustc-env=GPUAAS_FINDINGS={}", findings.display());
    let output = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("error_pages.rs");
    fs::write(output, pages).expect("the output directory is writable");
}
