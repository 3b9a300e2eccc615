//! The common parts of the OpenAPI document.
//!
//! Services describe their own operations; [`complete`] adds the bearer scheme and the problems that the middleware and the
//! extractors can return.

use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::Components;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, OpenApi, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{PartialSchema, ToSchema};

use crate::problem::{MEDIA_TYPE, ProblemDetails};

/// Name of the security scheme; operations use `security(("bearer" = ["submit"]))`.
pub const BEARER: &str = "bearer";

/// The component that all problem responses refer to.
const PROBLEM: &str = "Problem";

const WITH_BODY: [&str; 4] = ["400", "413", "415", "422"];
const WITH_PARAMETERS: [&str; 1] = ["400"];
const WITH_SECURITY: [&str; 2] = ["401", "403"];
const ALWAYS: [&str; 3] = ["500", "503", "default"];

/// Adds the bearer scheme, the problem schema and the standard problem responses. An operation's own descriptions stay.
pub fn complete(document: &mut OpenApi) {
    add_components(document.components.get_or_insert_default());
    for item in document.paths.paths.values_mut() {
        let shared_parameters = item
            .parameters
            .as_ref()
            .is_some_and(|some| !some.is_empty());
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
            &mut item.options,
            &mut item.head,
            &mut item.patch,
            &mut item.trace,
        ];
        for operation in operations.into_iter().flatten() {
            add_problems(operation, shared_parameters);
        }
    }
}

fn add_components(components: &mut Components) {
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "A configured token. Scopes: submit, read, operate, internal. Not needed if the server has no tokens.",
        ))
        .build();
    components.add_security_scheme(BEARER, SecurityScheme::Http(scheme));

    let mut schemas = vec![(
        ProblemDetails::name().into_owned(),
        ProblemDetails::schema(),
    )];
    ProblemDetails::schemas(&mut schemas);
    components.schemas.extend(schemas);

    let content = Content::new(Some(Ref::from_schema_name(ProblemDetails::name())));
    let response = ResponseBuilder::new()
        .description("What went wrong. `code` is stable, `type` links to its explanation.")
        .content(MEDIA_TYPE, content)
        .build();
    components
        .responses
        .insert(PROBLEM.to_owned(), RefOr::T(response));
}

fn add_problems(operation: &mut Operation, shared_parameters: bool) {
    let has_parameters = operation
        .parameters
        .as_ref()
        .is_some_and(|some| !some.is_empty());
    let mut add = |statuses: &[&str]| {
        for status in statuses {
            let reference = RefOr::<Response>::Ref(Ref::from_response_name(PROBLEM));
            operation
                .responses
                .responses
                .entry((*status).to_owned())
                .or_insert(reference);
        }
    };
    add(&ALWAYS);
    if operation.request_body.is_some() {
        add(&WITH_BODY);
    }
    if has_parameters || shared_parameters {
        add(&WITH_PARAMETERS);
    }
    if operation
        .security
        .as_ref()
        .is_some_and(|some| !some.is_empty())
    {
        add(&WITH_SECURITY);
    }
}
