//! The API reference page, rendered from the OpenAPI document: no script, nothing from other hosts.

use std::collections::BTreeMap;

use askama::Template;
use axum::{
    Router,
    http::header,
    response::{Html, IntoResponse},
    routing::get,
};
use serde_json::Value;
use utoipa::openapi::OpenApi;

const STYLE: &str = include_str!("../../templates/style.css");

#[derive(Template)]
#[template(path = "reference.html")]
struct Page {
    version: String,
    operations: Vec<Operation>,
    schemas: Vec<Schema>,
}

struct Operation {
    method: String,
    path: String,
    summary: String,
    description: String,
    scopes: String,
    parameters: Vec<Field>,
    body: String,
    responses: Vec<Field>,
}

struct Schema {
    name: String,
    description: String,
    fields: Vec<Field>,
}

struct Field {
    name: String,
    kind: String,
    description: String,
}

pub(super) fn routes(page: String) -> Router {
    Router::new()
        .route("/reference", get(move || async move { Html(page) }))
        .route(
            "/assets/style.css",
            get(|| async { ([(header::CONTENT_TYPE, "text/css")], STYLE).into_response() }),
        )
}

/// The whole page, rendered once at start.
pub(super) fn page(document: &OpenApi) -> String {
    let document = serde_json::to_value(document).unwrap_or_default();
    let page = Page {
        version: text(&document["info"]["version"]),
        operations: operations(&document),
        schemas: schemas(&document),
    };
    page.render()
        .unwrap_or_else(|error| format!("the reference can't be rendered: {error}"))
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut found = Vec::new();
    for (path, item) in entries(&document["paths"]) {
        for (method, operation) in entries(item) {
            found.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                summary: text(&operation["summary"]),
                description: text(&operation["description"]),
                scopes: scopes(&operation["security"]),
                parameters: items(&operation["parameters"])
                    .map(|parameter| Field {
                        name: text(&parameter["name"]),
                        kind: format!("{} {}", text(&parameter["in"]), kind(&parameter["schema"])),
                        description: text(&parameter["description"]),
                    })
                    .collect(),
                body: content(&operation["requestBody"]),
                responses: responses(document, &operation["responses"]),
            });
        }
    }
    found
}

/// The responses that an operation describes itself, then in one line those that all operations share.
fn responses(document: &Value, responses: &Value) -> Vec<Field> {
    let field = |name: String, response: &Value| Field {
        name,
        kind: content(response),
        description: text(&response["description"]),
    };
    let mut rows = Vec::new();
    let mut shared: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (status, response) in entries(responses) {
        match response["$ref"].as_str() {
            Some(reference) => shared.entry(reference).or_default().push(status),
            None => rows.push(field(status.clone(), response)),
        }
    }
    rows.extend(shared.into_iter().map(|(reference, statuses)| {
        let response = document
            .pointer(reference.trim_start_matches('#'))
            .unwrap_or(&Value::Null);
        field(statuses.join(", "), response)
    }));
    rows
}

fn schemas(document: &Value) -> Vec<Schema> {
    entries(&document["components"]["schemas"])
        .map(|(name, schema)| Schema {
            name: name.clone(),
            description: text(&schema["description"]),
            fields: entries(&schema["properties"])
                .map(|(name, field)| Field {
                    name: name.clone(),
                    kind: kind(field),
                    description: text(&field["description"]),
                })
                .collect(),
        })
        .collect()
}

/// Media type and shape of a body.
fn content(holder: &Value) -> String {
    entries(&holder["content"])
        .map(|(media, body)| format!("{media}: {}", kind(&body["schema"])))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A schema in a few words: `string`, `array of Job`, `Job`, `string or null`.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        return name.rsplit('/').next().unwrap_or(name).to_owned();
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        if schema[choice].is_array() {
            return items(&schema[choice])
                .map(kind)
                .collect::<Vec<_>>()
                .join(" or ");
        }
    }
    match &schema["type"] {
        Value::String(name) if name == "array" => format!("array of {}", kind(&schema["items"])),
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().map(text).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    }
}

fn scopes(security: &Value) -> String {
    items(security)
        .flat_map(|requirement| {
            entries(requirement)
                .flat_map(|(_, scopes)| items(scopes))
                .collect::<Vec<_>>()
        })
        .map(text)
        .collect::<Vec<_>>()
        .join(", ")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
