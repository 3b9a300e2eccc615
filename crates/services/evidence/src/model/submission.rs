//! Submissions and their validation.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Maximum number of rows per job.
pub const MAX_ROWS: usize = 50_000;

/// Maximum number of files per row; an event lists them all.
pub const MAX_FILES_PER_ROW: usize = 500;

/// Maximum lengths of texts, in bytes.
#[derive(Debug, Clone, Copy)]
pub enum MaxLength {
    /// Names of merchants, references and types.
    Name = 200,
    /// File names.
    File = 255,
    /// Keys of objects.
    Key = 1024,
}

/// The body of `POST /file-jobs` as JSON.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = FileJobRequest)]
pub struct JobRequest {
    /// The merchant.
    pub merchant_id: String,
    /// One row per case.
    pub rows: Vec<RowRequest>,
}

/// One row of a job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RowRequest {
    /// The case to attach the files to.
    pub case_id: Uuid,
    /// The merchant's reference.
    #[serde(default)]
    pub reference: Option<String>,
    /// The files; at least one.
    pub files: Vec<FileRequest>,
}

/// One file in the store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FileRequest {
    /// The name to attach it under.
    pub file_name: String,
    /// Its key in the store, or its absolute address.
    pub s3_key: String,
    /// Its media type; guessed from the name if absent.
    #[serde(default)]
    pub file_type: Option<String>,
}

/// A valid submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The merchant.
    pub merchant_id: String,
    /// `zip` or `json`.
    pub source: &'static str,
    /// At least one.
    pub rows: Vec<NewRow>,
}

/// A row of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRow {
    /// The case.
    pub case_id: Uuid,
    /// The merchant's reference.
    pub reference: Option<String>,
    /// At least one.
    pub files: Vec<NewFile>,
}

/// A file of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFile {
    /// The name to attach it under.
    pub file_name: String,
    /// Its media type.
    pub file_type: Option<String>,
    /// Its key in the store.
    pub s3_key: String,
    /// Its size, if known.
    pub size: Option<u64>,
    /// Its SHA-256 in hexadecimal, if known.
    pub sha256: Option<String>,
}

/// An invalid field of a submission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct InvalidField {
    /// A JSON pointer, or the name of a column or parameter.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl InvalidField {
    /// This field has this problem.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

/// Checks a text for headers, keys and tables: not empty, not too long, no control characters.
pub fn check_text(
    field: impl Into<String>,
    text: &str,
    max: MaxLength,
) -> Result<(), InvalidField> {
    let max = max as usize;
    let problem = if text.trim().is_empty() {
        "is empty".to_owned()
    } else if text.len() > max {
        format!("is longer than {max} bytes")
    } else if text.chars().any(char::is_control) {
        "contains a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(InvalidField::new(field, problem))
}

/// What is wrong with a file's name: it must not lead out of the folder that it is unpacked to.
pub(crate) fn path_problem(name: &str) -> Option<&'static str> {
    if name.starts_with('/') || name.contains(['\\', ':']) {
        return Some("isn't a relative path");
    }
    name.split('/')
        .any(|part| matches!(part, "" | "." | ".."))
        .then_some("leads out of its folder")
}

impl Submission {
    /// Validates a JSON request; `key_of` returns the store's key of an object.
    pub fn from_request(
        request: JobRequest,
        key_of: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, InvalidField> {
        check_text("/merchant_id", &request.merchant_id, MaxLength::Name)?;
        if request.rows.is_empty() {
            return Err(InvalidField::new("/rows", "must contain at least one row"));
        }
        if request.rows.len() > MAX_ROWS {
            return Err(InvalidField::new(
                "/rows",
                format!("has more than {MAX_ROWS} rows; submit several jobs"),
            ));
        }
        let mut rows = Vec::with_capacity(request.rows.len());
        for (n, row) in request.rows.into_iter().enumerate() {
            rows.push(new_row(&format!("/rows/{n}"), row, &key_of)?);
        }
        Ok(Self {
            merchant_id: request.merchant_id,
            source: "json",
            rows,
        })
    }

    /// Number of files.
    #[must_use]
    pub fn artifacts(&self) -> usize {
        self.rows.iter().map(|row| row.files.len()).sum()
    }
}

fn new_row(
    at: &str,
    row: RowRequest,
    key_of: &impl Fn(&str) -> Option<String>,
) -> Result<NewRow, InvalidField> {
    if let Some(reference) = &row.reference {
        check_text(format!("{at}/reference"), reference, MaxLength::Name)?;
    }
    if row.files.is_empty() {
        let problem = "must contain at least one file";
        return Err(InvalidField::new(format!("{at}/files"), problem));
    }
    if row.files.len() > MAX_FILES_PER_ROW {
        let problem = format!("has more than {MAX_FILES_PER_ROW} files; use several rows");
        return Err(InvalidField::new(format!("{at}/files"), problem));
    }
    let mut names = HashSet::new();
    let mut files = Vec::with_capacity(row.files.len());
    for (n, file) in row.files.into_iter().enumerate() {
        let at = format!("{at}/files/{n}");
        check_text(format!("{at}/file_name"), &file.file_name, MaxLength::File)?;
        if let Some(problem) = path_problem(&file.file_name) {
            return Err(InvalidField::new(format!("{at}/file_name"), problem));
        }
        check_text(format!("{at}/s3_key"), &file.s3_key, MaxLength::Key)?;
        if let Some(file_type) = &file.file_type {
            check_text(format!("{at}/file_type"), file_type, MaxLength::Name)?;
        }
        if !names.insert(file.file_name.clone()) {
            let problem = format!("{:?} occurs twice in this row", file.file_name);
            return Err(InvalidField::new(format!("{at}/file_name"), problem));
        }
        let Some(s3_key) = key_of(&file.s3_key) else {
            let problem = "isn't an object of this store; give its key or its address";
            return Err(InvalidField::new(format!("{at}/s3_key"), problem));
        };
        files.push(NewFile {
            file_type: file.file_type.or_else(|| media_type(&file.file_name)),
            file_name: file.file_name,
            s3_key,
            size: None,
            sha256: None,
        });
    }
    Ok(NewRow {
        case_id: row.case_id,
        reference: row.reference,
        files,
    })
}

/// The media type by the name's extension.
pub(crate) fn media_type(file_name: &str) -> Option<String> {
    let extension = file_name.rsplit_once('.')?.1.to_ascii_lowercase();
    let media = match extension.as_str() {
        "pdf" => "application/pdf",
        "jpg" | "jpeg" => "image/jpeg",
        "png" => "image/png",
        "gif" => "image/gif",
        "tif" | "tiff" => "image/tiff",
        "txt" => "text/plain",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "json" => "application/json",
        "eml" => "message/rfc822",
        "doc" => "application/msword",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        _ => return None,
    };
    Some(media.to_owned())
}
