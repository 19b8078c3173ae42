//! The OpenAPI document. No operation returns a status that the document does not list.

mod common;
mod declared;
pub(crate) mod enrollment;
mod parameters;
mod schema;

pub(crate) use declared::{Access, DRY_RUN, declared};
use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

#[derive(OpenApi)]
#[openapi(
    info(title = "GPUaaS", description = "The control plane of a GPU cloud. Every error is a problem document (RFC 9457) with a stable code. \
        In addition to the errors of each operation: an unknown path gets 404 `not_found`, and a method that a path does not have gets 405 \
        `method_not_allowed` with `Allow`. Without a body: 400 for a request that is not HTTP, 414 for a URL of 64 KiB or more, 431 for longer headers."),
    components(schemas(gpuaas_api_types::Problem)),
    modifiers(&Bearer, &Shared)
)]
struct Base;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        if let Some(components) = document.components.as_mut() {
            components.add_security_scheme("token", scheme);
        }
    }
}

struct Shared;

impl Modify for Shared {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        parameters::describe(document.components.get_or_insert_default());
    }
}

/// Returns the document without its routes.
pub(crate) fn base() -> utoipa::openapi::OpenApi {
    Base::openapi()
}

/// Returns the complete document.
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = crate::routes::documented();
    let mut problems = common::Responses::new();
    for item in document.paths.paths.values_mut() {
        item.get.iter_mut().for_each(|operation| common::complete(operation, false, &mut problems));
        let mutating = [&mut item.post, &mut item.put, &mut item.delete, &mut item.patch];
        mutating.into_iter().flatten().for_each(|operation| common::complete(operation, true, &mut problems));
    }
    document.components.get_or_insert_default().responses = problems;
    document
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gpuaas_model::{Code, LINE_FORMAT, Role};
    use serde_json::Value;

    use super::*;

    fn document_json() -> Value {
        serde_json::to_value(document()).unwrap()
    }

    /// Returns method, path and description of every operation.
    fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
        let paths = document["paths"].as_object().unwrap().iter();
        paths
            .flat_map(|(path, item)| {
                item.as_object().unwrap().iter().map(move |(method, of)| (method.as_str(), path.as_str(), of))
            })
            .collect()
    }

    #[test]
    fn operation_documents_exactly_the_statuses_of_its_codes() {
        let document = document_json();
        for (method, path, operation) in operations(&document) {
            let codes: Vec<Code> = operation["x-errors"]
                .as_array()
                .unwrap()
                .iter()
                .map(|code| code.as_str().unwrap().parse().unwrap())
                .collect();
            let mut wanted: BTreeSet<String> = codes.iter().map(|code| code.status().to_string()).collect();
            wanted.insert("431".to_owned());
            let responses = operation["responses"].as_object().unwrap();
            let documented: BTreeSet<String> =
                responses.keys().filter(|status| *status >= &"400".to_owned()).cloned().collect();
            assert_eq!(documented, wanted, "{method} {path}");
            for status in ["429", "500", "503"] {
                assert!(documented.contains(status), "{method} {path} lacks {status}");
            }
            for reference in responses.values().filter_map(|response| response["$ref"].as_str()) {
                assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
            }
        }
    }

    #[test]
    fn problem_response_lists_its_codes() {
        let document = document_json();
        let problem = &document["components"]["responses"]["unauthenticated"];
        let codes = problem.pointer("/content/application~1problem+json/schema/allOf/1/properties/code/enum");
        assert_eq!(codes, Some(&serde_json::json!(["unauthenticated"])));
        assert!(problem["headers"]["WWW-Authenticate"].is_object() && problem["headers"]["Correlation-Id"].is_object());
    }

    #[test]
    fn path_and_query_parameters_are_bounded() {
        let document = document_json();
        for (method, path, operation) in operations(&document) {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for parameter in parameters.filter(|of| of["in"] == "path" || of["in"] == "query") {
                let schema = &parameter["schema"];
                let bounded = match schema["type"].as_str() {
                    Some("string") => ["enum", "format", "pattern", "maxLength"].iter().any(|by| !schema[by].is_null()),
                    Some("integer") => schema["maximum"].is_number() && schema["minimum"].is_number(),
                    Some("boolean") => true,
                    _ => false,
                };
                assert!(bounded, "{method} {path}: {parameter}");
            }
        }
    }

    #[test]
    fn request_bodies_deny_unknown_fields() {
        let document = document_json();
        let mut bodies = 0;
        for (method, path, operation) in
            operations(&document).into_iter().filter(|(.., of)| of["requestBody"].is_object())
        {
            let schema = operation.pointer("/requestBody/content/application~1json/schema").unwrap();
            let schema = schema["$ref"].as_str().map_or(schema, |of| document.pointer(&of[1..]).unwrap());
            assert_eq!(schema["additionalProperties"], false, "{method} {path}");
            bodies += 1;
        }
        assert!(bodies >= 9, "{bodies}");
    }

    #[test]
    fn texts_of_bodies_and_queries_are_bounded() {
        /// Operations whose texts only programs read: agents send them, and the limits of the node channel check them.
        const MACHINE_OPERATIONS: [&str; 1] = ["enroll"];
        let document = document_json();
        let mut lines = 0;
        for (method, path, operation) in operations(&document) {
            let schema = operation.pointer("/requestBody/content/application~1json/schema").unwrap_or(&Value::Null);
            let schema = schema["$ref"].as_str().map_or(schema, |of| document.pointer(&of[1..]).unwrap());
            let fields = schema["properties"].as_object().into_iter().flatten();
            let fields = fields
                .flat_map(|(name, field)| [(name.as_str(), field), (name.as_str(), &field["additionalProperties"])]);
            let parameters = operation["parameters"].as_array().into_iter().flatten().filter(|of| of["in"] == "query");
            let parameters = parameters.map(|of| (of["name"].as_str().unwrap(), &of["schema"]));
            for (name, text) in fields.chain(parameters).filter(|(_, of)| of["type"].to_string().contains("\"string\""))
            {
                let is_checked = ["enum", "pattern", "format"].iter().any(|by| !text[by].is_null());
                let is_for_machines = MACHINE_OPERATIONS.iter().any(|of| operation["operationId"] == *of);
                assert!(is_checked || is_for_machines, "{method} {path}: {name} needs an enum, a pattern or a format");
                lines += usize::from(text["format"] == LINE_FORMAT);
            }
        }
        assert!(lines >= 12, "{lines}");
    }

    #[test]
    fn role_patterns_match_all_roles() {
        let document = document_json();
        let roles: Vec<String> = Role::ALL.iter().map(ToString::to_string).collect();
        let of_projects = Role::ALL.iter().filter(|role| !role.is_of_platform()).map(ToString::to_string);
        for (body, roles) in [("CreateToken", roles), ("CreateServiceAccount", of_projects.collect())] {
            let pattern = &document["components"]["schemas"][body]["properties"]["role"]["pattern"];
            assert_eq!(pattern, &format!("^({})$", roles.join("|")), "{body}");
        }
    }

    #[test]
    fn lists_are_paged() {
        /// Lists that stay short without pages: the catalog is compiled in, and operators create keys one at a time.
        const SHORT: [&str; 3] = ["list_apps", "list_authorities", "list_signing_keys"];
        let document = document_json();
        let is_list = |operation: &Value| {
            let schema = operation.pointer("/responses/200/content/application~1json/schema/$ref");
            schema.and_then(Value::as_str).is_some_and(|schema| schema.starts_with("#/components/schemas/List_"))
        };
        let mut lists = 0;
        for (method, path, operation) in operations(&document).into_iter().filter(|(.., of)| is_list(of)) {
            let takes = |name: &str| {
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                parameters.into_iter().any(|of| of["in"] == "query" && of["name"] == name)
            };
            let is_short = SHORT.iter().any(|short| operation["operationId"] == *short);
            let is_paged = takes("limit") && (takes("cursor") || takes("after"));
            assert!(is_paged || is_short, "{method} {path} has no pages");
            lists += 1;
        }
        assert!(lists >= 15, "{lists}");
    }
}
