//! Embeds the files of the workload shell that `cargo xtask ui` has built, so that the program needs no other files. Without
//! them, the program says that it lacks the shell; the build needs no Node.js.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

fn main() {
    let ui = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../ui");
    let dist = ui.join("dist");
    let mut files = Vec::new();
    println!("cargo::rerun-if-changed=build.rs");
    if dist.is_dir() {
        println!("cargo::rerun-if-changed={}", dist.display());
        collect(&dist, &mut files);
        files.sort();
    } else if ui.is_dir() {
        // Not the folder that is missing: cargo would build this crate again every time.
        println!("cargo::rerun-if-changed={}", ui.display());
    }
    let mut list = "&[\n".to_owned();
    for file in files.iter().filter(|file| !is_compressed(file)) {
        let path = file.strip_prefix(&dist).expect("the file is below the folder").to_str().expect("the name is UTF-8");
        let coded = |extension: &str| {
            let name = format!("{}.{extension}", file.display());
            if Path::new(&name).is_file() { format!("Some(include_bytes!({name:?}))") } else { "None".to_owned() }
        };
        writeln!(
            list,
            "    File {{ path: {:?}, content: include_bytes!({:?}), br: {}, gzip: {} }},",
            format!("/{path}"),
            file.display().to_string(),
            coded("br"),
            coded("gz")
        )
        .expect("memory");
    }
    list.push(']');
    let output = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("workload_shell.rs");
    fs::write(output, list).expect("the output directory is writable");
}

/// Adds every file below a folder.
fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("ui/dist is readable") {
        let path = entry.expect("ui/dist is readable").path();
        if path.is_dir() {
            collect(&path, into);
        } else {
            into.push(path);
        }
    }
}

/// Returns whether a file is another one in compressed form.
fn is_compressed(file: &Path) -> bool {
    let is_form = file.extension().is_some_and(|extension| extension == "br" || extension == "gz");
    is_form && file.with_extension("").is_file()
}
