//! Suggestions for verbs that other command lines have.

use clap::{
    Command,
    error::{ContextKind, ContextValue, Error, ErrorKind},
};

/// Verbs of kubectl, docker and Nomad, each with the verbs of this command line that do the same; a noun has some of them.
const OTHER_VERBS: [(&str, &[&str]); 22] = [
    ("get", &["show", "list"]),
    ("describe", &["show"]),
    ("status", &["show"]),
    ("inspect", &["show"]),
    ("ls", &["list"]),
    ("ps", &["list"]),
    ("create", &["create", "register", "deploy", "import", "set"]),
    ("add", &["register", "create", "add-member", "import", "set"]),
    ("apply", &["deploy"]),
    ("run", &["deploy"]),
    ("delete", &["delete", "decommission", "release", "revoke", "reset", "cancel"]),
    ("rm", &["delete", "decommission", "remove-member", "release", "revoke", "reset", "cancel"]),
    ("remove", &["delete", "decommission", "remove-member", "release", "revoke", "reset", "cancel"]),
    ("drain", &["drain-member"]),
    ("cordon", &["drain-member"]),
    ("uncordon", &["uncordon-member"]),
    ("rm-member", &["remove-member"]),
    ("delete-member", &["remove-member"]),
    ("replace", &["replace-member"]),
    ("restart", &["repair", "reconcile"]),
    ("scale", &["add-member", "remove-member"]),
    ("fix", &["fix", "repair", "reconcile"]),
];

/// Replaces the suggestions of an unknown verb by the verbs that do the same here; leaves every other error as it is.
pub(crate) fn improve(mut error: Error, root: &Command, arguments: &[String]) -> Error {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let suggested = suggested(root, arguments, unknown);
    if !suggested.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(suggested));
    }
    error
}

/// Least similarity of a suggestion, from 0 to 1: that of clap's own.
const SIMILARITY_MIN: f64 = 0.7;

/// Returns the candidate that a mistyped word most likely means.
pub(crate) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let rated = candidates.map(|candidate| (strsim::jaro(word, candidate), candidate));
    let best = rated.filter(|(similarity, _)| *similarity > SIMILARITY_MIN).max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map(|(_, candidate)| candidate)
}

/// Returns the verbs that do what `unknown` does elsewhere, for the noun before it; with `VERB NOUN` the order is turned around.
fn suggested(root: &Command, arguments: &[String], unknown: &str) -> Vec<String> {
    let Some((_, verbs)) = OTHER_VERBS.iter().find(|(other, _)| *other == unknown) else { return Vec::new() };
    let mut words = arguments.iter().map(String::as_str).filter(|word| !word.starts_with('-'));
    let noun = words.by_ref().take_while(|word| *word != unknown).filter_map(|word| root.find_subcommand(word)).last();
    if let Some(noun) = noun {
        return existing(noun, verbs).map(|verb| verb.get_name().to_owned()).collect();
    }
    // `get nodes`: the plural of a noun follows the verb.
    let after = words.next().map(|word| word.trim_end_matches('s'));
    let Some(noun) = after.and_then(|word| root.find_subcommand(word)) else { return Vec::new() };
    existing(noun, verbs).map(|verb| format!("{} {}", noun.get_name(), verb.get_name())).collect()
}

fn existing<'a>(noun: &'a Command, verbs: &'a [&str]) -> impl Iterator<Item = &'a Command> {
    verbs.iter().filter_map(|verb| noun.find_subcommand(verb)).filter(|verb| !verb.is_hide_set())
}

#[cfg(test)]
mod tests {
    use crate::help;

    use super::*;

    fn suggestions(line: &str) -> String {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = help::command().try_get_matches_from(&arguments).unwrap_err();
        let error = improve(error, &help::command(), &arguments);
        match error.get(ContextKind::SuggestedSubcommand) {
            Some(ContextValue::Strings(suggested)) => suggested.join(", "),
            Some(ContextValue::String(suggested)) => suggested.clone(),
            _ => String::new(),
        }
    }

    #[test]
    fn verbs_of_other_tools_suggest_the_verbs_that_do_the_same() {
        assert_eq!(suggestions("gpuaas node get"), "show, list");
        assert_eq!(suggestions("gpuaas node describe gpu-1"), "show");
        assert_eq!(suggestions("gpuaas workload ls"), "list");
        assert_eq!(suggestions("gpuaas workload delete train"), "decommission");
        assert_eq!(suggestions("gpuaas -o json token rm 1"), "revoke");
        assert_eq!(suggestions("gpuaas workload drain train agent-1"), "drain-member");
        assert_eq!(suggestions("gpuaas workload cordon train agent-1"), "drain-member");
        assert_eq!(suggestions("gpuaas workload rm-member train agent-1"), "remove-member");
        assert_eq!(suggestions("gpuaas workload delete-member train agent-1"), "remove-member");
        assert_eq!(suggestions("gpuaas workload remove train agent-1"), "decommission, remove-member");
        assert_eq!(suggestions("gpuaas restart workload train"), "workload repair, workload reconcile");
        assert_eq!(suggestions("gpuaas get nodes"), "node show, node list");
        assert_eq!(suggestions("gpuaas get gpu-1"), "");
        assert_eq!(suggestions("gpuaas node shwo"), "show", "a typing mistake keeps clap's own suggestion");
    }
}
