//! Implements `gpuaas app`.

use clap::Subcommand;
use gpuaas_api_types::{App, PlacementOption};
use gpuaas_client::Client;

use crate::{cli::Target, output};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List apps
    List,
    /// Show an app: its versions and what it promises
    Show {
        /// Slug of the app, for example rke2
        slug: String,
    },
    /// List the project's allocations with the reasons why each cannot be used for an app
    PlacementOptions {
        /// Slug of the app, for example rke2
        slug: String,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List => {
            let apps = client.list_apps().await?.items;
            output::list(target.output, &apps, &["SLUG", "NAME", "VERSIONS", "STATUS"], row, |app| app.slug.clone())
        }
        Verb::Show { slug } => output::one(target.output, &client.get_app(&slug).await?, described, &slug),
        Verb::PlacementOptions { slug } => {
            let options = client.placement_options(target.project.clone(), &slug).await?.items;
            let header = ["NODE", "ALLOCATION", "USABLE", "REASONS"];
            output::list(target.output, &options, &header, option, |option| option.allocation.id.clone())
        }
    }
}

fn row(app: &App) -> Vec<String> {
    vec![app.slug.clone(), app.name.clone(), versions(app).join(", "), app.status.clone()]
}

/// Returns the versions, each marked if it is a stand-in.
fn versions(app: &App) -> Vec<String> {
    let badge = |version: &String| if app.stand_ins.contains(version) { " (stand-in)" } else { "" };
    app.versions.iter().map(|version| format!("{version}{}", badge(version))).collect()
}

fn option(option: &PlacementOption) -> Vec<String> {
    let usable = if option.usable { "yes" } else { "no" };
    let reasons: Vec<String> =
        option.reasons.iter().map(|reason| format!("{} ({})", reason.detail, reason.code)).collect();
    vec![option.allocation.node_name.clone(), option.allocation.id.clone(), usable.to_owned(), reasons.join("; ")]
}

fn described(app: &App) -> String {
    let listed = |items: &[String]| items.iter().map(|item| format!("\n  {item}")).collect::<String>();
    format!(
        "{}   {} · {}\n{}\nVERSIONS{}\nPROMISED{}\nNOT PROMISED{}",
        app.slug,
        app.name,
        app.status,
        app.summary,
        listed(&versions(app)),
        listed(&app.promises),
        listed(&app.not_promised),
    )
}
