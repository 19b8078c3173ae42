//! `--plan` and `--plan-digest`: the plan of an operation before it runs, and as the condition for running it.

use clap::Args;
use gpuaas_api_types::Preview;

use super::confirm::{Confirm, Loss};
use crate::target::Target;

/// Flags of a command that plans an operation.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PlanArgs {
    /// Print the plan and change nothing: each step with its node, what it does and interrupts, its deadline, and the plan's digest
    #[arg(long, visible_alias = "dry-run")]
    pub(crate) plan: bool,
    /// Run only the plan with this digest, as --plan prints it; refuse any other plan and say how it differs
    #[arg(long, value_name = "DIGEST", conflicts_with = "plan")]
    pub(crate) plan_digest: Option<String>,
}

/// Flags of a command that plans an operation which interrupts something: it asks first.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConfirmedPlan {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Do not ask for confirmation; required without a terminal
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Permission to start an operation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Permit {
    /// The only plan that may run; `None` for any.
    pub(super) plan_digest: Option<String>,
}

impl ConfirmedPlan {
    /// Returns the permission to start the operation: with `--yes`, otherwise if a person says so, and then only for the plan that this
    /// person has seen. `None` after `--plan`, which prints the plan. `preview` asks the control plane.
    pub(super) async fn permit<E>(
        self,
        target: &Target,
        preview: impl Future<Output = Result<Preview, E>>,
        loss: impl FnOnce(&Preview) -> Loss,
        name: &str,
    ) -> anyhow::Result<Option<Permit>>
    where
        anyhow::Error: From<E>,
    {
        let mut shown = None;
        let loss = |preview: &Preview| {
            shown = digest_of(preview);
            loss(preview)
        };
        let is_allowed = self.confirm().allows(target, preview, loss, name).await?;
        Ok(is_allowed.then(|| Permit { plan_digest: self.plan.plan_digest.or(shown) }))
    }

    /// Refuses a command that would have to ask where nobody can answer. Called before the first request.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.confirm().check()
    }

    const fn confirm(&self) -> Confirm {
        Confirm { yes: self.yes, dry_run: self.plan.plan }
    }
}

/// Returns the digest of a plan; `None` if the control plane is too old to send one.
fn digest_of(preview: &Preview) -> Option<String> {
    Some(preview.digest.clone()).filter(|digest| !digest.is_empty())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ConfirmedPlan,
    }

    fn parsed(flags: &[&str]) -> Result<ConfirmedPlan, clap::Error> {
        Line::try_parse_from([&["gpuaas"], flags].concat()).map(|line| line.args)
    }

    #[test]
    fn plan_has_the_alias_dry_run_and_excludes_a_digest() {
        assert!(parsed(&["--plan"]).expect("valid").plan.plan && parsed(&["--dry-run"]).expect("valid").plan.plan);
        assert!(parsed(&["--plan", "--plan-digest", "plan-1"]).is_err(), "nothing runs that could have the digest");
        let digest = parsed(&["--yes", "--plan-digest", "plan-1"]).expect("valid").plan.plan_digest;
        assert_eq!(digest.as_deref(), Some("plan-1"));
    }

    #[tokio::test]
    async fn given_digest_is_the_only_plan_that_may_run_and_yes_permits_any() {
        let line = crate::help::command().try_get_matches_from(["gpuaas", "version"]).expect("valid");
        let target = <Target as clap::FromArgMatches>::from_arg_matches(&line).expect("the global flags");
        let permit = async |flags: &[&str]| {
            let preview = async { Err::<Preview, anyhow::Error>(anyhow::anyhow!("asked for a plan")) };
            let loss = |_: &Preview| Loss::new("stop train", "It ends.");
            parsed(flags).expect("valid").permit(&target, preview, loss, "train").await
        };
        let of = |digest: Option<&str>| Some(Permit { plan_digest: digest.map(str::to_owned) });
        assert_eq!(permit(&["--yes"]).await.expect("permitted"), of(None));
        assert_eq!(permit(&["--yes", "--plan-digest", "plan-1"]).await.expect("permitted"), of(Some("plan-1")));
        assert_eq!(permit(&["--plan"]).await.expect_err("it asks").to_string(), "asked for a plan");
    }
}
