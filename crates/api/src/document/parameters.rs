//! Describes the parameters that operations of one kind share: headers and path segments; and the header of every response.

use utoipa::openapi::{
    Components, Header, KnownFormat, ObjectBuilder, Ref, RefOr, Required, SchemaFormat, Type,
    path::{Operation, Parameter, ParameterBuilder, ParameterIn},
};

use super::{kind::Kind, schema};
use crate::idempotency::KEY_BYTES_MAX;

/// Reference to the description of the correlation id in responses.
pub(super) const ECHOED: &str = "#/components/headers/CorrelationId";

/// Entity tags of RFC 9110: `*`, or a list of tags.
const TAGS: &str = r#"^(\*|(W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)$"#;

/// Adds the headers that an operation of this kind accepts, and the schemas of its path and query parameters.
pub(super) fn complete(operation: &mut Operation, kind: &Kind) {
    let name = operation.operation_id.clone().unwrap_or_default();
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        let schema = match parameter.parameter_in {
            ParameterIn::Path => Some(schema::of_path(&parameter.name).into()),
            ParameterIn::Query => schema::of_query(&parameter.name, &name),
            _ => None,
        };
        parameter.schema = schema.or(parameter.schema.take());
    }
    let mut taken = vec!["CorrelationId"];
    taken.extend(kind.takes_key().then_some("IdempotencyKey"));
    taken.extend(kind.checks_if_match.then_some("IfMatch"));
    taken.extend(kind.has_etag.then_some("IfNoneMatch"));
    let references = taken.into_iter().map(|name| RefOr::Ref(Ref::new(format!("#/components/parameters/{name}"))));
    operation.parameters.get_or_insert_default().extend(references);
}

/// Describes each shared header once.
pub(super) fn describe(components: &mut Components) {
    let mut describe = |name: &str, parameter: Parameter| {
        components.parameters.insert(name.to_owned(), parameter.into());
    };
    let correlation = "A UUID that identifies this request in logs, events and audit records. Any other value is \
                       replaced by a new UUID.";
    let uuid =
        ObjectBuilder::new().schema_type(Type::String).format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid)));
    describe("CorrelationId", header("Correlation-Id", correlation, ObjectBuilder::new().schema_type(Type::String)));
    let key = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(KEY_BYTES_MAX))
        .pattern(Some("^[!-~]+$"));
    let description = "A request that is repeated with the same key within a day gets the stored response.";
    describe("IdempotencyKey", header("Idempotency-Key", description, key));
    let tags = || ObjectBuilder::new().schema_type(Type::String).pattern(Some(TAGS));
    let description = "ETags, one of which must be the object's; otherwise nothing is changed. `*` for any.";
    describe("IfMatch", header("If-Match", description, tags()));
    let description = "ETags that the caller already has. If one is the object's, the response is 304 without a body.";
    describe("IfNoneMatch", header("If-None-Match", description, tags()));
    let mut echoed = Header::new(uuid.build());
    echoed.description = Some("The correlation id of the request.".to_owned());
    components.headers.insert("CorrelationId".to_owned(), echoed.into());
}

fn header(name: &str, description: &str, schema: ObjectBuilder) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema))
        .build()
}
