//! Reads the lists for a support bundle: the newest objects of each list, and the event streams of all projects.

use std::collections::VecDeque;

use gpuaas_client::{Client, ClientError};
use gpuaas_model::Code;
use serde_json::Value;

use super::to_json;

/// Most objects of one list in a bundle: the newest.
const KEPT_MAX: usize = 5_000;
/// Most pages, of up to 1000 objects, that are read per list. The bundle says which lists are longer.
const PAGES_MAX: usize = 200;

/// Pagination of a list.
#[derive(Clone, Copy)]
enum Pagination {
    /// The list has a single page.
    One,
    /// The cursor is an id.
    Ids,
    /// The cursor is a gapless sequence number, so the newest objects can be found without reading all.
    Numbers,
}

/// The lists in a bundle.
const LISTS: [(&str, Pagination); 14] = [
    ("replicas", Pagination::Ids),
    ("projects", Pagination::Ids),
    ("nodes", Pagination::Ids),
    ("allocations", Pagination::Ids),
    ("apps", Pagination::One),
    ("artifacts", Pagination::Ids),
    ("workloads", Pagination::Ids),
    ("operations", Pagination::Ids),
    ("tasks", Pagination::Ids),
    ("signing-keys", Pagination::One),
    ("authorities", Pagination::One),
    ("events", Pagination::Numbers),
    ("audit", Pagination::Numbers),
    ("archives", Pagination::Ids),
];

/// Adds an entry for each list that could be read, and adds a line to `missing` for each other one.
pub(super) async fn lists(client: &Client, entries: &mut Vec<(String, String)>, missing: &mut Vec<String>) {
    let mut projects = Vec::new();
    for (name, pages) in LISTS {
        match fetch_newest(&List { client, name, project: None }, pages).await {
            Ok(Fetched { items, is_cut_off }) => {
                if is_cut_off {
                    missing.push(format!(
                        "{name}: the list is longer than {PAGES_MAX} pages, so its newest objects are missing"
                    ));
                }
                if name == "projects" {
                    projects = items.iter().filter_map(|project| project["name"].as_str().map(str::to_owned)).collect();
                }
                entries.push((format!("{name}.json"), to_json(&items)));
            }
            Err(error) => missing.push(format!("{name}: {error}")),
        }
    }
    for project in projects {
        match fetch_newest(&List { client, name: "events", project: Some(&project) }, Pagination::Numbers).await {
            Ok(fetched) => entries.push((format!("events/{project}.json"), to_json(&fetched.items))),
            Err(error) => missing.push(format!("events of {project}: {error}")),
        }
    }
}

/// A list of the platform or of one project.
struct List<'a> {
    client: &'a Client,
    name: &'a str,
    project: Option<&'a str>,
}

impl List<'_> {
    async fn page(&self, pages: Pagination, position: Option<String>) -> anyhow::Result<Value> {
        let position_parameter = match pages {
            Pagination::One => "",
            Pagination::Ids => "cursor",
            Pagination::Numbers => "after",
        };
        let limit = if matches!(pages, Pagination::One) { None } else { Some("1000".to_owned()) };
        let parameters =
            [("project", self.project.map(str::to_owned)), ("limit", limit), (position_parameter, position)];
        Ok(self.client.read_page(self.name, &parameters).await?)
    }

    async fn has_any_after(&self, number: u64) -> anyhow::Result<bool> {
        let page = match self.page(Pagination::Numbers, Some(number.to_string())).await {
            // Removed events are older than those that remain.
            Err(error) if is_events_gone(&error) => return Ok(true),
            page => page?,
        };
        Ok(page["items"].as_array().is_some_and(|items| !items.is_empty()))
    }
}

/// What was read of a list.
struct Fetched {
    /// The last objects that were read, at most [`KEPT_MAX`].
    items: VecDeque<Value>,
    /// Whether newer objects follow, because the list has more than [`PAGES_MAX`] pages.
    is_cut_off: bool,
}

/// Returns the newest objects of a list.
async fn fetch_newest(list: &List<'_>, pages: Pagination) -> anyhow::Result<Fetched> {
    let mut kept = VecDeque::new();
    let mut position = match pages {
        Pagination::Numbers => {
            let last = find_near_last(KEPT_MAX as u64, async |number| list.has_any_after(number).await).await?;
            Some(last.saturating_sub(KEPT_MAX as u64).to_string())
        }
        Pagination::One | Pagination::Ids => None,
    };
    for _ in 0..PAGES_MAX {
        let mut page = match list.page(pages, position).await {
            // The events after that number were removed: read all that remain.
            Err(error) if is_events_gone(&error) => list.page(pages, Some("0".to_owned())).await?,
            page => page?,
        };
        let items = page["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        kept.extend(items);
        kept.drain(..kept.len().saturating_sub(KEPT_MAX));
        position = page["next_cursor"].as_str().map(str::to_owned);
        if position.is_none() {
            return Ok(Fetched { items: kept, is_cut_off: false });
        }
    }
    Ok(Fetched { items: kept, is_cut_off: true })
}

/// Reports whether the error is `events_archived`: events after the requested number were removed.
fn is_events_gone(error: &anyhow::Error) -> bool {
    let problem = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Problem(problem)) => problem,
        Some(_) | None => return false,
    };
    problem.code == Code::EventsArchived.as_str()
}

/// Returns a number at most `near` below the last one, and not above it. Doubles and halves its steps, so it needs few requests.
async fn find_near_last(near: u64, has_any_after: impl AsyncFn(u64) -> anyhow::Result<bool>) -> anyhow::Result<u64> {
    let (mut reached, mut step) = (0, near);
    while has_any_after(reached + step).await? {
        reached += step;
        step *= 2;
    }
    while step > near {
        step /= 2;
        if has_any_after(reached + step).await? {
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
    async fn newest_objects_are_found_in_few_requests() {
        for last in [0, 1, 4_999, 5_000, 5_001, 40_001, 123_456, 50_000_000] {
            let requests = AtomicU32::new(0);
            let has_any_after = async |number| {
                requests.fetch_add(1, Ordering::Relaxed);
                Ok(last > number)
            };
            let found = find_near_last(5_000, has_any_after).await.unwrap();
            assert!(found <= last && last - found <= 5_000, "{found} of {last}");
            assert!(requests.load(Ordering::Relaxed) < 40, "{requests:?} requests");
        }
    }
}
