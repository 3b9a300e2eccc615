//! The API's description: `/openapi.json` and the page made from it.

use axum::{Router, http::header, routing::get};
use utoipa::openapi::{Info, OpenApi, OpenApiBuilder};
use utoipa_axum::router::OpenApiRouter;

use super::{State, reference, routes};

/// The routes with the head of the document: name, version, what it is.
pub(super) fn with_document(routes: OpenApiRouter<State>) -> OpenApiRouter<State> {
    let mut info = Info::new("Postrider", env!("CARGO_PKG_VERSION"));
    info.description = Some("Durable work and delivery on PostgreSQL.".into());
    OpenApiRouter::with_openapi(OpenApiBuilder::new().info(info).build()).merge(routes)
}

/// The document, without a running server.
pub fn openapi() -> OpenApi {
    complete(with_document(routes()).into_openapi())
}

/// The document as it is served and committed: pretty, with a line end.
pub fn openapi_json() -> serde_json::Result<String> {
    openapi().to_pretty_json().map(|text| text + "\n")
}

fn complete(mut document: OpenApi) -> OpenApi {
    postrider_web::openapi::complete(&mut document);
    document
}

/// `/openapi.json` and `/reference`; both are rendered once.
pub(super) fn routes_for(document: OpenApi) -> Router {
    let document = complete(document);
    let json = document.to_pretty_json().unwrap_or_default() + "\n";
    let page = reference::page(&document);
    Router::new()
        .route(
            "/openapi.json",
            get(move || async move { ([(header::CONTENT_TYPE, "application/json")], json) }),
        )
        .merge(reference::routes(page))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::services;

    #[test]
    fn schemas_with_the_same_name_are_the_same() {
        let routers = std::iter::once(super::super::own_routes()).chain(services::routers());
        let mut known = BTreeMap::new();
        for router in routers {
            let document = router.into_openapi();
            let schemas = document.components.map(|all| all.schemas);
            for (name, schema) in schemas.into_iter().flatten() {
                let schema = serde_json::to_value(schema).expect("a schema is JSON");
                let before = known.entry(name.clone()).or_insert_with(|| schema.clone());
                assert_eq!(*before, schema, "two different schemas are called {name}");
            }
        }
    }
}
