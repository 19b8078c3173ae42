//! `-o jsonpath=TEMPLATE`: kubectl's templates with the paths of RFC 9535.
//!
//! Text outside of braces is printed as it is. `{.items[0].name}` prints what a path selects, several values with blanks between them;
//! `{"\n"}` prints a text; `{range .items[*]}…{end}` repeats a template for each value. A template without braces is one path.

use serde_json::Value;
use serde_json_path::JsonPath;

/// A template, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Path(JsonPath),
    Each(JsonPath, Vec<Part>),
}

impl Template {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if !text.contains('{') {
            return Ok(Self(vec![Part::Path(path(text)?)]));
        }
        // The open ranges, outermost first, each with the parts before it.
        let (mut parts, mut open): (Vec<Part>, Vec<(JsonPath, Vec<Part>)>) = (Vec::new(), Vec::new());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let end = closing_brace(after).ok_or_else(|| format!("{{{after} has no closing brace"))?;
            let inside = after[..end].trim();
            rest = &after[end + 1..];
            match inside {
                "end" => {
                    let (each, before) = open.pop().ok_or("{end} has no {range …}")?;
                    let within = std::mem::replace(&mut parts, before);
                    parts.push(Part::Each(each, within));
                }
                _ if inside.starts_with("range ") => {
                    open.push((path(inside["range ".len()..].trim())?, std::mem::take(&mut parts)));
                }
                _ if inside.starts_with(['"', '\'']) => parts.push(Part::Text(unquoted(inside)?)),
                _ => parts.push(Part::Path(path(inside)?)),
            }
        }
        if !open.is_empty() {
            return Err("{range …} has no {end}".to_owned());
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// Returns the text of the template for a document. A path that selects nothing prints nothing.
    pub(crate) fn render(&self, document: &Value) -> String {
        render(&self.0, document)
    }
}

fn render(parts: &[Part], document: &Value) -> String {
    let part = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Path(path) => path.query(document).iter().map(|value| plain(value)).collect::<Vec<_>>().join(" "),
        Part::Each(path, within) => path.query(document).iter().map(|value| render(within, value)).collect(),
    };
    parts.iter().map(part).collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Parses a path; its beginning `$` may be absent, or `@` as in kubectl.
fn path(text: &str) -> Result<JsonPath, String> {
    let complete = match text.chars().next() {
        Some('$') => text.to_owned(),
        Some('@') => format!("${}", &text[1..]),
        Some('.' | '[') => format!("${text}"),
        _ => format!("$.{text}"),
    };
    JsonPath::parse(&complete).map_err(|error| format!("{text:?} is not a JSONPath of RFC 9535: {error}"))
}

/// Returns the position of the brace that ends an expression; braces in quotes do not.
fn closing_brace(text: &str) -> Option<usize> {
    let (mut quote, mut escaped) = (None, false);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            _ if std::mem::take(&mut escaped) => {}
            (Some(_), '\\') => escaped = true,
            (Some(open), _) => quote = Some(open).filter(|open| *open != character),
            (None, '"' | '\'') => quote = Some(character),
            (None, '}') => return Some(at),
            (None, _) => {}
        }
    }
    None
}

/// Returns a quoted text with its escapes replaced: those of JSON.
fn unquoted(text: &str) -> Result<String, String> {
    let inner = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    let quoted = inner.map_or_else(|| text.to_owned(), |inner| format!("\"{}\"", inner.replace('"', "\\\"")));
    serde_json::from_str(&quoted).map_err(|_| format!("{text} is not a quoted text"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(template: &str) -> String {
        let nodes = json!({ "items": [
            { "name": "gpu-1", "state": "active", "labels": { "rack": "r1" }, "cpus": 2 },
            { "name": "gpu-2", "state": "retired", "labels": {}, "cpus": 4 },
        ] });
        Template::parse(template).unwrap().render(&nodes)
    }

    #[test]
    fn templates_of_kubectl_are_rendered() {
        for (template, expected) in [
            ("{.items[0].name}", "gpu-1"),
            (".items[0].name", "gpu-1"),
            ("{.items[*].name}", "gpu-1 gpu-2"),
            ("{$.items[1].labels}", "{}"),
            ("{.items[-1:].cpus}", "4"),
            ("first: {.items[0].labels['rack']}!", "first: r1!"),
            (r#"{range .items[*]}{.name}{"\t"}{@.state}{'\n'}{end}"#, "gpu-1\tactive\ngpu-2\tretired\n"),
            (r#"{.items[?(@.state=="retired")].name}"#, "gpu-2"),
            (r#"{.items[?@.name == "}"].name}{.items[0].none}"#, ""),
        ] {
            assert_eq!(rendered(template), expected, "{template}");
        }
    }

    #[test]
    fn invalid_templates_are_refused() {
        for template in ["{.items", "{end}", "{range .items[*]}", "{.items[}", "{\"a}", ".."] {
            assert!(Template::parse(template).is_err(), "{template}");
        }
    }
}
