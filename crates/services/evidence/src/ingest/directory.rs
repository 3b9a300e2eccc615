//! Reads an archive's central directory before the archive is opened.
//!
//! The ZIP reader loads the whole directory into memory and keeps only one of two entries with the same name. So the
//! directory is checked here first: its size is limited, and no name may occur twice.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};

use crate::EvidenceError;

const END: [u8; 4] = *b"PK\x05\x06";
const END_64_LOCATOR: [u8; 4] = *b"PK\x06\x07";
const END_64: [u8; 4] = *b"PK\x06\x06";
const ENTRY: [u8; 4] = *b"PK\x01\x02";

/// Maximum size of the end record with its comment.
const MAX_END_SIZE: u64 = 22 + 65_535;

/// Maximum size of the directory.
const MAX_DIRECTORY_SIZE: u64 = 64 * 1024 * 1024;

/// Maximum length of a name.
const MAX_NAME_LENGTH: usize = 1024;

/// The names of the entries, in their order, without duplicates.
pub(super) fn names(file: &mut File, max_entries: usize) -> Result<Vec<String>, EvidenceError> {
    walk(file, max_entries).map_err(|error| match error {
        DirectoryError::Invalid(error) => error,
        DirectoryError::Io(error) if error.kind() == ErrorKind::UnexpectedEof => truncated(),
        DirectoryError::Io(error) => EvidenceError::Disk(error),
    })
}

enum DirectoryError {
    Invalid(EvidenceError),
    Io(std::io::Error),
}

impl From<std::io::Error> for DirectoryError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<EvidenceError> for DirectoryError {
    fn from(error: EvidenceError) -> Self {
        Self::Invalid(error)
    }
}

fn walk(file: &mut File, max_entries: usize) -> Result<Vec<String>, DirectoryError> {
    let (count, size, start) = end_record(file)?;
    if count > u64::try_from(max_entries).unwrap_or(u64::MAX) {
        let problem = format!("has {count} entries; the limit is {max_entries}");
        return Err(EvidenceError::entry("archive", problem).into());
    }
    if size > MAX_DIRECTORY_SIZE {
        return Err(EvidenceError::entry("archive", "has too large a directory").into());
    }
    file.seek(SeekFrom::Start(start))?;
    let mut list = BufReader::new(&mut *file).take(size);
    let mut seen = HashSet::new();
    let mut names = Vec::new();
    for _ in 0..count {
        let mut head = [0; 46];
        list.read_exact(&mut head)?;
        if head[..4] != ENTRY {
            return Err(truncated().into());
        }
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(&head, at)));
        let mut bytes = vec![0; name];
        list.read_exact(&mut bytes)?;
        std::io::copy(
            &mut (&mut list).take(u64::try_from(extra + comment).unwrap_or(u64::MAX)),
            &mut std::io::sink(),
        )?;
        let name = String::from_utf8(bytes).map_err(|error| {
            let shown = String::from_utf8_lossy(error.as_bytes()).into_owned();
            EvidenceError::entry(shown, "has a name that is not UTF-8")
        })?;
        if name.len() > MAX_NAME_LENGTH {
            return Err(EvidenceError::entry(name, "has a name that is too long").into());
        }
        if !seen.insert(name.clone()) {
            return Err(EvidenceError::entry(name, "occurs twice in the archive").into());
        }
        names.push(name);
    }
    file.rewind()?;
    Ok(names)
}

/// The number of entries, and the directory's size and offset.
fn end_record(file: &mut File) -> Result<(u64, u64, u64), DirectoryError> {
    let length = file.seek(SeekFrom::End(0))?;
    let tail = length.min(MAX_END_SIZE);
    file.seek(SeekFrom::Start(length - tail))?;
    let mut bytes = Vec::new();
    file.take(tail).read_to_end(&mut bytes)?;
    let ends_the_file = |at: &usize| {
        bytes[*at..].starts_with(&END)
            && bytes.len() >= at + 22
            && usize::from(u16_at(&bytes, at + 20)) == bytes.len() - at - 22
    };
    let at = (0..bytes.len()).rev().find(ends_the_file);
    let at =
        at.ok_or_else(|| EvidenceError::entry("archive", "isn't a ZIP archive, or is truncated"))?;
    let record = length - tail + u64::try_from(at).unwrap_or(u64::MAX);
    let count = u64::from(u16_at(&bytes, at + 10));
    let size = u64::from(u32_at(&bytes, at + 12));
    let large = count == 0xffff || size == 0xffff_ffff || u32_at(&bytes, at + 16) == u32::MAX;
    if !large {
        return Ok((count, size, record.checked_sub(size).ok_or_else(truncated)?));
    }
    // Beyond 65,535 entries or 4 GB there is a ZIP64 record, and a locator for it in front of this one.
    let mut locator = [0; 20];
    file.seek(SeekFrom::Start(
        record.checked_sub(20).ok_or_else(truncated)?,
    ))?;
    file.read_exact(&mut locator)?;
    if locator[..4] != END_64_LOCATOR {
        return Ok((count, size, record.checked_sub(size).ok_or_else(truncated)?));
    }
    let at = u64_at(&locator, 8);
    let mut wide = [0; 56];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut wide)?;
    if wide[..4] != END_64 {
        return Err(truncated().into());
    }
    let size = u64_at(&wide, 40);
    let start = at.checked_sub(size).ok_or_else(truncated)?;
    Ok((u64_at(&wide, 32), size, start))
}

fn truncated() -> EvidenceError {
    EvidenceError::entry("archive", "is damaged: its directory can't be read")
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..at + 2)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}
