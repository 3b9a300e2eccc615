//! Reads `manifest.csv`, which assigns files to cases.

use std::collections::HashSet;

use uuid::Uuid;

use crate::EvidenceError;
use crate::model::{MAX_FILES_PER_ROW, MAX_ROWS, MaxLength, check_text};

const ENTRY: &str = "manifest.csv";
const HEADER: [&str; 3] = ["case_id", "reference", "files"];

/// One line of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub line: u64,
    pub case_id: Uuid,
    pub reference: Option<String>,
    pub files: Vec<String>,
}

/// Reads and checks every line; the error names the first invalid one.
pub(super) fn read(text: &str) -> Result<Vec<Row>, EvidenceError> {
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let mut lines = csv::ReaderBuilder::new().from_reader(text.as_bytes());
    let header = lines.headers().map_err(|error| unreadable(&error))?;
    if !header.iter().map(str::trim).eq(HEADER) {
        let problem = format!("must start with the header {}", HEADER.join(","));
        return Err(EvidenceError::entry(ENTRY, problem));
    }
    let mut rows = Vec::new();
    for record in lines.records() {
        let record = record.map_err(|error| unreadable(&error))?;
        if rows.len() == MAX_ROWS {
            let problem = format!("has more than {MAX_ROWS} rows");
            return Err(EvidenceError::entry(ENTRY, problem));
        }
        rows.push(row(&record)?);
    }
    if rows.is_empty() {
        return Err(EvidenceError::entry(ENTRY, "has no rows"));
    }
    Ok(rows)
}

fn row(record: &csv::StringRecord) -> Result<Row, EvidenceError> {
    let line = record.position().map_or(0, csv::Position::line);
    let invalid = |column: &str, problem: &str| {
        EvidenceError::entry(ENTRY, format!("line {line}, column {column} {problem}"))
    };
    let cell = |n: usize| record.get(n).unwrap_or_default().trim();
    for (column, value) in HEADER.iter().zip(record) {
        // A spreadsheet that opens the manifest or a report would run these.
        if value.starts_with(['=', '+', '-', '@', '\t', '\r']) {
            return Err(invalid(column, "starts like a formula"));
        }
    }
    let case_id = cell(0)
        .parse()
        .map_err(|_| invalid("case_id", "is not a UUID"))?;
    let reference = Some(cell(1)).filter(|text| !text.is_empty());
    if let Some(reference) = reference {
        check_text("reference", reference, MaxLength::Name)
            .map_err(|error| invalid("reference", &error.problem))?;
    }
    let mut seen = HashSet::new();
    let mut files = Vec::new();
    for name in cell(2).split(';').map(str::trim) {
        if name.is_empty() {
            return Err(invalid("files", "is empty or contains an empty name"));
        }
        if !seen.insert(name) {
            return Err(invalid("files", &format!("lists {name:?} twice")));
        }
        files.push(name.to_owned());
    }
    if files.len() > MAX_FILES_PER_ROW {
        let problem = format!("lists more than {MAX_FILES_PER_ROW} files");
        return Err(invalid("files", &problem));
    }
    Ok(Row {
        line,
        case_id,
        reference: reference.map(str::to_owned),
        files,
    })
}

fn unreadable(error: &csv::Error) -> EvidenceError {
    EvidenceError::entry(ENTRY, format!("can't be read as CSV: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const CASE: &str = "7f0c2f9e-4f1c-4f7e-9c7a-1d2e3f4a5b6c";

    fn error_of(lines: &str) -> String {
        read(&format!("case_id,reference,files\n{lines}"))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_line_has_a_case_a_reference_and_files() {
        let text = format!("\u{FEFF}case_id,reference,files\r\n{CASE},\"R, 1\",a.pdf; b/c.png\r\n");
        let rows = read(&text).unwrap();
        assert_eq!(rows[0].case_id.to_string(), CASE);
        assert_eq!(rows[0].reference.as_deref(), Some("R, 1"));
        assert_eq!(rows[0].files, ["a.pdf", "b/c.png"]);
    }

    #[test]
    fn errors_name_line_and_column() {
        assert!(error_of("").contains("no rows"));
        assert!(error_of("nope,,a.pdf\n").contains("line 2, column case_id"));
        assert!(error_of(&format!("{CASE},,\n")).contains("column files"));
        assert!(error_of(&format!("{CASE},,a;;b\n")).contains("column files"));
        assert!(error_of(&format!("{CASE},,a;a\n")).contains("twice"));
        assert!(
            error_of(&format!("{CASE},=1+1,a\n"))
                .contains("column reference starts like a formula")
        );
        assert!(error_of(&format!("{CASE},,@x\n")).contains("column files starts like a formula"));
        assert!(error_of(&format!("{CASE},a\n")).contains("CSV"));
        assert!(
            read("case,ref\n")
                .unwrap_err()
                .to_string()
                .contains("header")
        );
    }
}
