//! How a plan differs from one that was shown earlier.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

use gpuaas_model::{Code, Name, Reason, cut};

use super::{OutlinedMember, OutlinedStep, PlanOutline};
use crate::plan::StepKey;

/// Most differences that a refusal names; it counts the others.
pub const DIFFERENCES_MAX: usize = 20;
/// Longest text of one difference, in bytes.
const DETAIL_BYTES_MAX: usize = 512;

impl PlanOutline {
    /// Returns how this plan differs from `shown`, at most [`DIFFERENCES_MAX`] differences and then the number of all others.
    pub fn differences(&self, shown: &Self) -> Vec<Reason> {
        let mut found = Found(Vec::new());
        self.request_differences(shown, &mut found);
        self.member_differences(shown, &mut found);
        self.step_differences(shown, &mut found);
        found.bounded("differences")
    }

    /// Returns the steps of this plan for a person who cannot be shown a difference, at most [`DIFFERENCES_MAX`] and then the number of
    /// all others.
    pub fn listed(&self) -> Vec<Reason> {
        let mut found = Found(Vec::new());
        for step in &self.steps {
            found.add(format!("steps[{}]", step.key), format!("it would {}", step.on_its_node()));
        }
        found.bounded("steps")
    }

    fn request_differences(&self, shown: &Self, found: &mut Found) {
        found.compare("project", self.project, shown.project);
        found.compare("app", &self.app, &shown.app);
        found.compare("name", &self.name, &shown.name);
        found.compare("kind", self.kind, shown.kind);
        found.compare("parameters", &self.parameters, &shown.parameters);
        found.compare("version", &self.version, &shown.version);
        if self.workload != shown.workload {
            found.add("workload", "it is about another workload");
        }
        if self.resumes != shown.resumes {
            found.add("resumes", "it continues another operation");
        }
        if self.release != shown.release {
            found.add("release", "the files of the release are others");
        }
        if self.settings_sha256 != shown.settings_sha256 {
            found.add("config", "the settings are others");
        }
    }

    fn member_differences(&self, shown: &Self, found: &mut Found) {
        let now: BTreeMap<&str, &OutlinedMember> = named(&self.members);
        let before: BTreeMap<&str, &OutlinedMember> = named(&shown.members);
        for (name, member) in &now {
            let field = format!("members[{name}]");
            match before.get(name) {
                None => found.add(field, format!("it is now about this member, too, on {}", member.node_name)),
                Some(shown) => {
                    found.compare(&field, member.state, shown.state);
                    found.compare(&field, &member.node_name, &shown.node_name);
                    if (member.allocation, member.node) != (shown.allocation, shown.node) {
                        found.add(field, "it has another allocation");
                    }
                }
            }
        }
        for name in before.keys().filter(|name| !now.contains_key(*name)) {
            found.add(format!("members[{name}]"), "it is no longer about this member");
        }
        let order = |members: &[OutlinedMember]| members.iter().map(|member| member.name.clone()).collect::<Vec<_>>();
        if now.keys().eq(before.keys()) && order(&self.members) != order(&shown.members) {
            found.add("members", "their order is another");
        }
    }

    fn step_differences(&self, shown: &Self, found: &mut Found) {
        let before: BTreeMap<&str, &OutlinedStep> = keyed(&shown.steps);
        let now: BTreeSet<&str> = self.steps.iter().map(|step| step.key.as_str()).collect();
        for step in &self.steps {
            let field = format!("steps[{}]", step.key);
            match before.get(step.key.as_str()) {
                None => found.add(field, format!("added: it would {}", step.on_its_node())),
                Some(shown) => step.compare(shown, &field, found),
            }
        }
        for step in shown.steps.iter().filter(|step| !now.contains(step.key.as_str())) {
            found.add(format!("steps[{}]", step.key), format!("left out: it would no longer {}", step.on_its_node()));
        }
        let common = |steps: &[OutlinedStep], other: &dyn Fn(&str) -> bool| -> Vec<String> {
            steps.iter().map(|step| step.key.to_string()).filter(|key| other(key)).collect()
        };
        let order = common(&self.steps, &|key| before.contains_key(key));
        if order != common(&shown.steps, &|key| now.contains(key)) {
            found.add("steps", "their order is another");
        }
    }
}

impl OutlinedStep {
    /// Returns what the step does with its node, in words.
    fn on_its_node(&self) -> String {
        self.node_name.as_ref().map_or_else(|| self.does.clone(), |node| format!("{} ({node})", self.does))
    }

    fn compare(&self, shown: &Self, field: &str, found: &mut Found) {
        let keys = |keys: &Vec<StepKey>| keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let node = |name: &Option<Name>| name.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
        found.changed(field, "the phase", &self.phase, &shown.phase, String::clone);
        found.changed(field, "the member", &self.member, &shown.member, or_none);
        found.changed(field, "the node", &self.node_name, &shown.node_name, node);
        found.changed(field, "the action", &self.action, &shown.action, String::clone);
        found.changed(field, "what it needs", &self.needs, &shown.needs, keys);
        found.changed(field, "what it follows", &self.after, &shown.after, keys);
        found.changed(field, "the deadline", &self.deadline_ms, &shown.deadline_ms, |millis| format!("{millis} ms"));
        found.changed(field, "what it interrupts", &self.interrupts, &shown.interrupts, or_none);
    }
}

fn named(members: &[OutlinedMember]) -> BTreeMap<&str, &OutlinedMember> {
    members.iter().map(|member| (member.name.as_str(), member)).collect()
}

fn keyed(steps: &[OutlinedStep]) -> BTreeMap<&str, &OutlinedStep> {
    steps.iter().map(|step| (step.key.as_str(), step)).collect()
}

/// Differences as reasons of a refusal.
struct Found(Vec<Reason>);

impl Found {
    fn add(&mut self, field: impl Into<String>, detail: impl Into<String>) {
        let detail = cut(&detail.into(), DETAIL_BYTES_MAX).into_owned();
        self.0.push(Reason { field: field.into(), code: Code::PlanChanged, detail, next: None });
    }

    /// Adds a difference between two values of a field.
    fn compare(&mut self, field: &str, now: impl Display, shown: impl Display) {
        let (now, shown) = (now.to_string(), shown.to_string());
        if now != shown {
            self.add(field, format!("{now} instead of {shown}"));
        }
    }

    /// Adds a difference between two values of a part of a step.
    fn changed<T: PartialEq>(&mut self, field: &str, part: &str, now: &T, shown: &T, text: impl Fn(&T) -> String) {
        if now != shown {
            self.add(field, format!("changed: {part} is {:?} instead of {:?}", text(now), text(shown)));
        }
    }

    fn bounded(self, what: &str) -> Vec<Reason> {
        let mut reasons = self.0;
        let more = reasons.len().saturating_sub(DIFFERENCES_MAX);
        reasons.truncate(DIFFERENCES_MAX);
        let mut rest = Self(reasons);
        if more > 0 {
            rest.add("plan", format!("and {more} more {what}"));
        }
        rest.0
    }
}
