//! The lists of a bundle: of each the newest objects, and the streams of all projects.

use std::collections::VecDeque;

use gpuaas_client::{Client, ClientError};
use gpuaas_model::Code;
use serde_json::Value;

use super::written;

/// Objects of one kind in a bundle: the newest.
const KEPT_MAX: usize = 5_000;
/// Pages of a list that are read at most.
const PAGES_MAX: usize = 200;

/// How a list is read on.
#[derive(Clone, Copy)]
enum Pages {
    /// There is one.
    One,
    /// Behind an id.
    Ids,
    /// Behind a number, which grows by one with each: the newest can be found without reading all.
    Numbers,
}

/// The lists that make up a bundle.
const LISTS: [(&str, Pages); 14] = [
    ("replicas", Pages::Ids),
    ("projects", Pages::Ids),
    ("nodes", Pages::Ids),
    ("allocations", Pages::Ids),
    ("apps", Pages::One),
    ("artifacts", Pages::Ids),
    ("workloads", Pages::Ids),
    ("operations", Pages::Ids),
    ("tasks", Pages::Ids),
    ("signing-keys", Pages::One),
    ("authorities", Pages::One),
    ("events", Pages::Numbers),
    ("audit", Pages::Numbers),
    ("archives", Pages::Ids),
];

/// Adds what could be read, and says what could not.
pub(super) async fn lists(client: &Client, entries: &mut Vec<(String, String)>, missing: &mut Vec<String>) {
    let mut projects = Vec::new();
    for (name, pages) in LISTS {
        match gathered(&List { client, name, project: None }, pages).await {
            Ok(items) => {
                if name == "projects" {
                    projects = items.iter().filter_map(|project| project["name"].as_str().map(str::to_owned)).collect();
                }
                entries.push((format!("{name}.json"), written(&items)));
            }
            Err(error) => missing.push(format!("{name}: {error}")),
        }
    }
    for project in projects {
        match gathered(&List { client, name: "events", project: Some(&project) }, Pages::Numbers).await {
            Ok(items) => entries.push((format!("events/{project}.json"), written(&items))),
            Err(error) => missing.push(format!("events of {project}: {error}")),
        }
    }
}

/// A list, and whose.
struct List<'a> {
    client: &'a Client,
    name: &'a str,
    project: Option<&'a str>,
}

impl List<'_> {
    async fn page(&self, pages: Pages, place: Option<String>) -> anyhow::Result<Value> {
        let behind = match pages {
            Pages::One => "",
            Pages::Ids => "cursor",
            Pages::Numbers => "after",
        };
        let limit = if matches!(pages, Pages::One) { None } else { Some("1000".to_owned()) };
        let parameters = [("project", self.project.map(str::to_owned)), ("limit", limit), (behind, place)];
        Ok(self.client.read_page(self.name, &parameters).await?)
    }

    async fn has_any_behind(&self, number: u64) -> anyhow::Result<bool> {
        let page = match self.page(Pages::Numbers, Some(number.to_string())).await {
            // Removed events came before those that are kept.
            Err(error) if is_gone(&error) => return Ok(true),
            page => page?,
        };
        Ok(page["items"].as_array().is_some_and(|items| !items.is_empty()))
    }
}

/// The newest objects of a list.
async fn gathered(list: &List<'_>, pages: Pages) -> anyhow::Result<VecDeque<Value>> {
    let mut kept = VecDeque::new();
    let mut place = match pages {
        Pages::Numbers => {
            let last = almost_last(KEPT_MAX as u64, async |number| list.has_any_behind(number).await).await?;
            Some(last.saturating_sub(KEPT_MAX as u64).to_string())
        }
        Pages::One | Pages::Ids => None,
    };
    for _ in 0..PAGES_MAX {
        let mut page = match list.page(pages, place).await {
            // Fewer are kept than a bundle has room for.
            Err(error) if is_gone(&error) => list.page(pages, Some("0".to_owned())).await?,
            page => page?,
        };
        let items = page["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        kept.extend(items);
        kept.drain(..kept.len().saturating_sub(KEPT_MAX));
        place = page["next_cursor"].as_str().map(str::to_owned);
        if place.is_none() {
            break;
        }
    }
    Ok(kept)
}

/// Whether events behind that number were removed.
fn is_gone(error: &anyhow::Error) -> bool {
    let problem = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Problem(problem)) => problem,
        Some(_) | None => return false,
    };
    problem.code == Code::EventsGone.as_str()
}

/// A number that is less than `near` away from the last one, and not beyond it.
async fn almost_last(near: u64, has_any_behind: impl AsyncFn(u64) -> anyhow::Result<bool>) -> anyhow::Result<u64> {
    let (mut reached, mut step) = (0, near);
    while has_any_behind(reached + step).await? {
        reached += step;
        step *= 2;
    }
    while step > near {
        step /= 2;
        if has_any_behind(reached + step).await? {
            reached += step;
        }
    }
    Ok(reached)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn the_newest_are_found_in_few_questions_however_many_there_are() {
        for last in [0, 1, 4_999, 5_000, 5_001, 40_001, 123_456, 50_000_000] {
            let asked = AtomicU32::new(0);
            let has_any_behind = async |number| {
                asked.fetch_add(1, Ordering::Relaxed);
                Ok(last > number)
            };
            let found = almost_last(5_000, has_any_behind).await.unwrap();
            assert!(found <= last && last - found <= 5_000, "{found} of {last}");
            assert!(asked.load(Ordering::Relaxed) < 40, "{asked:?} questions");
        }
    }
}
