//! `POST /protocols`: text or PDF as the body, or a form with `title` and `file`.

use axum::{
    extract::{Request, State},
    http::header,
};
use bytes::Bytes;
use postrider_web::{
    Problem, Query, body,
    error_code::codes::{INVALID_VALUE, UNSUPPORTED_MEDIA_TYPE},
};
use serde::Deserialize;

use super::Protocols;
use crate::{document::Media, model::Uploaded, service::Upload};

/// Maximum size of the field `title` in a form, in bytes.
const MAX_TITLE_BYTES: u64 = 64 * 1024;

/// The title of a protocol.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct UploadQuery {
    /// The protocol's title; in a form, the field `title` is used.
    title: Option<String>,
}

/// Upload a protocol.
///
/// As `text/plain` or `application/pdf` with `?title=…`, or as `multipart/form-data` with the fields `title` and `file`.
/// The document must be plain text or a PDF, and not empty. Once the response is 201, document and event are durable.
#[utoipa::path(post, path = "/protocols", tag = "protocols", security(("bearer" = ["submit"])), params(UploadQuery),
    request_body(description = "the document", content(
        (String = "text/plain"), (Vec<u8> = "application/pdf"), (Vec<u8> = "multipart/form-data"))),
    responses(
        (status = 201, description = "accepted; extraction is next", body = Uploaded),
        (status = 422, description = "the title is invalid, or the document is neither text nor a PDF"),
        (status = 503, description = "the object store or the database is unavailable"),
))]
pub(super) async fn post_protocol(
    State(protocols): State<Protocols>,
    Query(query): Query<UploadQuery>,
    request: Request,
) -> Result<Uploaded, Problem> {
    let content_type = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let form = multer::parse_boundary(&content_type).ok();
    let media = Media::parse(&content_type);
    if form.is_none() && media.is_none() {
        return Err(unsupported(
            "text/plain, application/pdf or multipart/form-data",
        ));
    }
    let content = body::read_up_to(request, protocols.max_size()).await?;
    let upload = match (form, media) {
        (Some(boundary), _) => read_form(content, boundary, query.title).await?,
        (None, Some(media)) => Upload {
            title: query.title.unwrap_or_default(),
            media,
            file_name: None,
            content,
        },
        (None, None) => return Err(unsupported("text/plain or application/pdf")),
    };
    Ok(protocols.accept(upload).await?)
}

/// Reads the fields of a form; each at most once, no others.
async fn read_form(
    content: Bytes,
    boundary: String,
    mut title: Option<String>,
) -> Result<Upload, Problem> {
    let limits = multer::SizeLimit::new().for_field("title", MAX_TITLE_BYTES);
    let constraints = multer::Constraints::new().size_limit(limits);
    let stream = futures_util::stream::once(async { Ok::<_, std::io::Error>(content) });
    let mut form = multer::Multipart::with_constraints(stream, boundary, constraints);
    let mut file = None;
    while let Some(field) = form.next_field().await.map_err(malformed)? {
        match field.name().unwrap_or_default() {
            "title" if title.is_none() => title = Some(field.text().await.map_err(malformed)?),
            "file" if file.is_none() => {
                let media = media_type(&field)?;
                let name = field.file_name().map(str::to_owned);
                file = Some((media, name, field.bytes().await.map_err(malformed)?));
            }
            name @ ("title" | "file") => {
                return Err(invalid(name, "occurs twice"));
            }
            other => {
                let name = other.chars().take(100).collect::<String>();
                return Err(invalid(
                    &name,
                    "is not a field of this form; its fields are title and file",
                ));
            }
        }
    }
    let (media, file_name, content) =
        file.ok_or_else(|| invalid("file", "is missing; it must contain the document"))?;
    Ok(Upload {
        title: title.unwrap_or_default(),
        media,
        file_name,
        content,
    })
}

/// The media type by content type or, without one, by file name.
fn media_type(field: &multer::Field<'_>) -> Result<Media, Problem> {
    let declared = field.content_type().map(ToString::to_string);
    let by_name = || {
        let name = field.file_name()?.to_ascii_lowercase();
        if name.ends_with(".pdf") {
            Some(Media::Pdf)
        } else if name.ends_with(".txt") || name.ends_with(".text") {
            Some(Media::Text)
        } else {
            None
        }
    };
    match declared.as_deref() {
        None | Some("application/octet-stream") => by_name(),
        Some(declared) => Media::parse(declared),
    }
    .ok_or_else(|| unsupported("text/plain or application/pdf for the field file"))
}

fn unsupported(what: &str) -> Problem {
    Problem::new(
        &UNSUPPORTED_MEDIA_TYPE,
        format!("A protocol must be plain text or a PDF: send {what}."),
    )
    .field("content-type", "not supported")
}

fn invalid(field: &str, reason: &str) -> Problem {
    Problem::new(
        &INVALID_VALUE,
        format!("The protocol is invalid: {field} {reason}."),
    )
    .field(field, reason)
}

fn malformed(error: multer::Error) -> Problem {
    Problem::new(&INVALID_VALUE, format!("The form is malformed: {error}."))
}
