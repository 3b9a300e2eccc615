//! What is handed in: rows of files, checked before anything is stored.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// The most rows of one job.
pub const MAX_ROWS: usize = 50_000;

/// The most files of one row: an event names them all.
pub const MAX_FILES_PER_ROW: usize = 500;

/// How long texts may be, in bytes.
#[derive(Debug, Clone, Copy)]
pub enum Width {
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
    /// Whose evidence it is.
    pub merchant_id: String,
    /// One for each case.
    pub rows: Vec<RowRequest>,
}

/// One row of a job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RowRequest {
    /// The case that the files belong to.
    pub case_id: Uuid,
    /// The merchant's own name for it.
    #[serde(default)]
    pub reference: Option<String>,
    /// The files; at least one.
    pub files: Vec<FileRequest>,
}

/// One file, which is in the store already.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FileRequest {
    /// The name to attach it under.
    pub file_name: String,
    /// Its key in the store, or its absolute address there.
    pub s3_key: String,
    /// Its media type; guessed from the name if absent.
    #[serde(default)]
    pub file_type: Option<String>,
}

/// A job that can be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// Whose evidence it is.
    pub merchant_id: String,
    /// `zip` or `json`.
    pub source: &'static str,
    /// At least one.
    pub rows: Vec<NewRow>,
}

/// A row of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRow {
    /// The case.
    pub case_id: Uuid,
    /// The merchant's own name for it.
    pub reference: Option<String>,
    /// At least one.
    pub files: Vec<NewFile>,
}

/// A file of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFile {
    /// The name to attach it under.
    pub file_name: String,
    /// Its media type.
    pub file_type: Option<String>,
    /// Its key in the store.
    pub s3_key: String,
    /// Its size, if it is known.
    pub size: Option<u64>,
    /// Its SHA-256 in hexadecimal, if it is known.
    pub sha256: Option<String>,
}

/// What is wrong with a submission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct Invalid {
    /// A JSON pointer, or the name of a column or parameter.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Invalid {
    /// This field has this problem.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

/// Texts that go into headers, keys and tables: not empty, not endless, no control characters.
pub fn check_text(field: impl Into<String>, text: &str, width: Width) -> Result<(), Invalid> {
    let most = width as usize;
    let problem = if text.trim().is_empty() {
        "is empty".to_owned()
    } else if text.len() > most {
        format!("is longer than {most} bytes")
    } else if text.chars().any(char::is_control) {
        "contains a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(Invalid::new(field, problem))
}

/// What is wrong with a file's name: whoever unpacks the evidence under it must not be led elsewhere.
pub(crate) fn wrong_with_path(name: &str) -> Option<&'static str> {
    if name.starts_with('/') || name.contains(['\\', ':']) {
        return Some("is no plain relative path");
    }
    name.split('/')
        .any(|part| matches!(part, "" | "." | ".."))
        .then_some("leads out of its folder")
}

impl Submission {
    /// What a JSON request asks for, with `key_of` telling the store's own name of an object.
    pub fn of_request(
        request: JobRequest,
        key_of: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Invalid> {
        check_text("/merchant_id", &request.merchant_id, Width::Name)?;
        if request.rows.is_empty() {
            return Err(Invalid::new("/rows", "is empty: a job needs a row"));
        }
        if request.rows.len() > MAX_ROWS {
            return Err(Invalid::new(
                "/rows",
                format!("has more than {MAX_ROWS} rows: hand it in as several jobs"),
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

    /// How many files there are.
    #[must_use]
    pub fn artifacts(&self) -> usize {
        self.rows.iter().map(|row| row.files.len()).sum()
    }
}

fn new_row(
    at: &str,
    row: RowRequest,
    key_of: &impl Fn(&str) -> Option<String>,
) -> Result<NewRow, Invalid> {
    if let Some(reference) = &row.reference {
        check_text(format!("{at}/reference"), reference, Width::Name)?;
    }
    if row.files.is_empty() {
        let problem = "is empty: a row needs a file";
        return Err(Invalid::new(format!("{at}/files"), problem));
    }
    if row.files.len() > MAX_FILES_PER_ROW {
        let problem = format!("has more than {MAX_FILES_PER_ROW} files: make it several rows");
        return Err(Invalid::new(format!("{at}/files"), problem));
    }
    let mut names = HashSet::new();
    let mut files = Vec::with_capacity(row.files.len());
    for (n, file) in row.files.into_iter().enumerate() {
        let at = format!("{at}/files/{n}");
        check_text(format!("{at}/file_name"), &file.file_name, Width::File)?;
        if let Some(problem) = wrong_with_path(&file.file_name) {
            return Err(Invalid::new(format!("{at}/file_name"), problem));
        }
        check_text(format!("{at}/s3_key"), &file.s3_key, Width::Key)?;
        if let Some(file_type) = &file.file_type {
            check_text(format!("{at}/file_type"), file_type, Width::Name)?;
        }
        if !names.insert(file.file_name.clone()) {
            let problem = format!("{:?} stands twice in this row", file.file_name);
            return Err(Invalid::new(format!("{at}/file_name"), problem));
        }
        let Some(s3_key) = key_of(&file.s3_key) else {
            let problem = "names no object of this store: give its key, or its address in it";
            return Err(Invalid::new(format!("{at}/s3_key"), problem));
        };
        files.push(NewFile {
            file_type: file.file_type.or_else(|| guess(&file.file_name)),
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

/// The media types that evidence usually has, by the ending of the name.
pub(crate) fn guess(file_name: &str) -> Option<String> {
    let ending = file_name.rsplit_once('.')?.1.to_ascii_lowercase();
    let media = match ending.as_str() {
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
