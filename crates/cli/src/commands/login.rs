//! Implements `gpuaas login`.

use std::{
    io::IsTerminal as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use clap::Args;
use gpuaas_api_types::SignInLink;
use gpuaas_client::{Client, ClientError};
use gpuaas_server::write_private;

use crate::{environment, output, target::Target};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Login {
    /// Print a link that signs one browser in, valid for 10 minutes, and open it if this machine has a browser
    #[arg(long)]
    browser: bool,
}

pub(crate) async fn run(client: &Client, target: &Target, options: Login) -> anyhow::Result<()> {
    if !options.browser {
        let why = "only a browser signs in: add --browser; the command line itself uses a token, which a context keeps: \
                   gpuaas context set NAME --token-file FILE";
        return Err(ClientError::InvalidSetting(why.to_owned()).into());
    }
    let link = client.create_sign_in_link().await?;
    if target.output.is_for_people() {
        let opened = if std::io::stdout().is_terminal() && open(&link) { "; it is being opened" } else { "" };
        output::message(format_args!("This link signs one browser in, until {}{opened}:", link.expires_at));
    }
    output::one(target.output, &link, |link| link.url.clone(), &link.url)
}

/// Opens the link in the browser of this session of a desktop. Returns false if there is none.
///
/// The browser gets the link in a file that only this user can read: other users can read the arguments of a process.
fn open(link: &SignInLink) -> bool {
    let is_desktop = ["WAYLAND_DISPLAY", "DISPLAY"].into_iter().any(|name| environment::variable(name).is_some());
    let folder = environment::variable("XDG_RUNTIME_DIR").filter(|_| is_desktop && is_plain(&link.url));
    let Some(folder) = folder else { return false };
    let page = PathBuf::from(folder).join("gpuaas-sign-in.html");
    let content = format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={}\">\n", link.url);
    if write_private(&page, content.as_bytes()).is_err() {
        return false;
    }
    // In the background: it may run as long as the browser that it starts.
    let script = "command -v xdg-open && { xdg-open \"$0\" & }";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(&page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.status().is_ok_and(|status| status.success())
}

/// Returns whether a link can stand in the page as it is. The server chose it: the page must not get another element or open a local file.
fn is_plain(url: &str) -> bool {
    let is_special = |of: char| of.is_whitespace() || of.is_control() || "\"'<>&;".contains(of);
    url.starts_with("https://") && !url.contains(is_special)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_https_link_is_written_into_the_page() {
        assert!(is_plain("https://[2001:db8::1]:7443/#sign-in=gpuaas-link_aB-_9"));
        for url in [
            "",
            "http://cloud/#sign-in=x",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "https://cloud/\"><script>",
            "https://cloud/'",
            "https://cloud/&quot;",
            "https://cloud/;url=file:///",
            "https://cloud/ x",
            "https://cloud/\n",
            "https://cloud/\u{1b}",
        ] {
            assert!(!is_plain(url), "{url:?}");
        }
    }
}
