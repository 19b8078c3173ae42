//! How the imported releases of an app are shown.

use gpuaas_api_types::App;

/// Returns the versions, each marked if it is a stand-in.
pub(crate) fn versions(app: &App) -> Vec<String> {
    let badge = |version: &String| if app.stand_ins.contains(version) { " (stand-in)" } else { "" };
    app.versions.iter().map(|version| format!("{version}{}", badge(version))).collect()
}
