//! Implements `gpuaas app`.

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::{App, AppOperation, PlacementOption};
use gpuaas_client::Client;
use gpuaas_model::OperationKind;

use crate::{
    completion, output,
    releases::versions,
    table::{Column, column},
    target::{Format, Target},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List apps
    List,
    /// Show an app: its versions and what it promises
    Show {
        /// Slug of the app, for example rke2
        #[arg(add = ArgValueCandidates::new(completion::apps))]
        slug: String,
    },
    /// List the project's allocations with the reasons why each cannot be used for an app
    PlacementOptions {
        /// Slug of the app, for example rke2
        #[arg(add = ArgValueCandidates::new(completion::apps))]
        slug: String,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List => {
            let apps = client.list_apps().await?.items;
            output::list(target.output, &apps, APPS, |app| app.slug.clone())
        }
        Verb::Show { slug } => output::one(target.output, &client.get_app(&slug).await?, described, &slug),
        Verb::PlacementOptions { slug } => {
            let mut options = client.placement_options(target.project.clone(), &slug).await?.items;
            if target.output == Format::Name {
                options.retain(|option| option.usable);
            }
            output::list(target.output, &options, OPTIONS, |option| option.allocation.id.clone())
        }
    }
}

const APPS: &[Column<App>] = &[
    column("SLUG", |app| app.slug.clone()),
    column("NAME", |app| app.name.clone()),
    column("VERSIONS", |app| versions(app).join(", ")),
    column("STATUS", |app| status(app).to_owned()),
];

const OPTIONS: &[Column<PlacementOption>] = &[
    column("NODE", |option| option.allocation.node_name.clone()),
    column("ALLOCATION", |option| option.allocation.id.clone()),
    column("USABLE", |option| if option.usable { "yes" } else { "no" }.to_owned()),
    column("REASONS", |option| {
        let reasons = option.reasons.iter().map(|reason| format!("{} ({})", reason.detail, reason.code));
        reasons.collect::<Vec<_>>().join("; ")
    }),
];

fn status(app: &App) -> &str {
    if app.versions.is_empty() { "no release imported" } else { &app.status }
}

/// Returns whether `gpuaas operation start` takes the operation. The others have commands of their own.
pub(crate) fn is_startable(operation: &AppOperation) -> bool {
    operation.kind.parse::<OperationKind>().is_ok_and(|kind| kind.own_command().is_none())
}

/// Returns the kind of an operation with the names of its parameters, for example `upgrade (parameters: version)`.
fn operation(operation: &AppOperation) -> String {
    let names =
        operation.parameters_schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.collect();
    let mut notes = Vec::new();
    notes.extend((!names.is_empty()).then(|| format!("parameters: {}", names.join(", "))));
    notes.extend((!operation.available).then(|| "not available yet".to_owned()));
    if notes.is_empty() { operation.kind.clone() } else { format!("{} ({})", operation.kind, notes.join("; ")) }
}

fn described(app: &App) -> String {
    let listed = |items: &[String]| items.iter().map(|item| format!("\n  {item}")).collect::<String>();
    format!(
        "{}   {} · {}\n{}\nVERSIONS{}\nOPERATIONS{}\nPROMISED{}\nNOT PROMISED{}",
        app.slug,
        app.name,
        status(app),
        app.summary,
        listed(&if app.versions.is_empty() { vec!["none".to_owned()] } else { versions(app) }),
        listed(&app.operations.iter().filter(|of| is_startable(of)).map(operation).collect::<Vec<_>>()),
        listed(&app.promises),
        listed(&app.not_promised),
    )
}
