use axum::Router;
use postrider_web::{Json, Page, Path, Scope, openapi, require};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::support::{call, default_middleware, json, post_json};

#[derive(Serialize, Deserialize, ToSchema)]
struct Parcel {
    to: String,
}

#[utoipa::path(post, path = "/parcels", request_body = Parcel, security(("bearer" = ["submit"])),
    responses((status = 201, body = Parcel), (status = 422, description = "own words")))]
async fn send(Json(parcel): Json<Parcel>) -> Json<Parcel> {
    Json(parcel)
}

#[utoipa::path(get, path = "/parcels/{id}", params(("id" = u64, Path)), security(("bearer" = ["read"])),
    responses((status = 200, body = Page<Parcel>)))]
async fn parcels(Path(_): Path<u64>) -> Json<Page<Parcel>> {
    Json(Page {
        items: Vec::new(),
        next_cursor: None,
    })
}

fn build() -> (Router, utoipa::openapi::OpenApi) {
    let submit = OpenApiRouter::new()
        .routes(routes!(send))
        .route_layer(require(Scope::Submit));
    let read = OpenApiRouter::new()
        .routes(routes!(parcels))
        .layer(require(Scope::Read));
    let (router, mut document) = OpenApiRouter::new()
        .merge(submit)
        .merge(read)
        .split_for_parts();
    openapi::complete(&mut document);
    (default_middleware(router), document)
}

#[test]
fn the_document_has_the_scheme_and_the_problems_of_each_operation() {
    let document = serde_json::to_value(build().1).unwrap();
    let components = &document["components"];
    assert_eq!(components["securitySchemes"]["bearer"]["scheme"], "bearer");
    assert_eq!(
        components["responses"]["Problem"]["content"]["application/problem+json"]["schema"]["$ref"],
        "#/components/schemas/ProblemDetails"
    );
    for schema in ["ProblemDetails", "FieldError"] {
        assert!(
            components["schemas"][schema]["properties"].is_object(),
            "{schema}"
        );
    }
    let problem = serde_json::json!({"$ref": "#/components/responses/Problem"});
    let send = &document["paths"]["/parcels"]["post"]["responses"];
    for status in ["400", "401", "403", "413", "415", "500", "503", "default"] {
        assert_eq!(send[status], problem, "{status}");
    }
    assert_eq!(send["422"]["description"], "own words");
    let read = &document["paths"]["/parcels/{id}"]["get"]["responses"];
    assert_eq!(read["400"], problem);
    assert!(read["413"].is_null());
}

#[tokio::test]
async fn scopes_and_the_middleware_work_on_documented_routers() {
    let sent = call(&build().0, post_json("/parcels", r#"{"to":"Ann"}"#)).await;
    assert_eq!(json(sent).await["to"], "Ann");
}
