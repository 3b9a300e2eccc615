//! Checks an archive before it is unpacked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Read};

use zip::{CompressionMethod, ZipArchive};

use super::{directory, manifest};
use crate::{EvidenceError, model::path_problem, settings::Ingest as Limits};

/// The entry that assigns files to cases.
const MANIFEST: &str = "manifest.csv";

/// Maximum size of a manifest.
const MAX_MANIFEST_SIZE: u64 = 16 * 1024 * 1024;

/// Size up to which an entry may exceed the compression ratio.
const RATIO_EXEMPT: u64 = 64 * 1024;

/// The reader of an archive in a file.
pub(super) type Reader = ZipArchive<BufReader<File>>;

/// An archive that passed the checks.
pub(super) struct CheckedArchive {
    rows: Vec<manifest::Row>,
    unpacking: Unpacking,
}

/// The files to unpack.
pub(super) struct Unpacking {
    pub reader: Reader,
    /// Each file's name, index and declared size.
    pub files: Vec<(String, usize, u64)>,
}

impl CheckedArchive {
    pub(super) fn into_parts(self) -> (Vec<manifest::Row>, Unpacking) {
        (self.rows, self.unpacking)
    }
}

/// Checks names, types, sizes and the manifest.
pub(super) fn check(mut file: File, limits: &Limits) -> Result<CheckedArchive, EvidenceError> {
    let names = directory::names(&mut file, limits.max_entries)?;
    let mut reader = ZipArchive::new(BufReader::new(file)).map_err(|error| {
        EvidenceError::entry("archive", format!("isn't a readable ZIP archive: {error}"))
    })?;
    if reader.len() != names.len() {
        return Err(EvidenceError::entry("archive", "is inconsistent"));
    }
    let mut files = BTreeMap::new();
    let mut total = 0_u64;
    for (index, name) in names.into_iter().enumerate() {
        let size = check_entry(&reader, index, &name, limits)?;
        total = total.saturating_add(size);
        if total > limits.max_unpacked.as_u64() {
            let problem = format!(
                "makes the archive larger than {} when unpacked",
                limits.max_unpacked
            );
            return Err(EvidenceError::entry(name, problem));
        }
        if !name.ends_with('/') {
            files.insert(name, (index, size));
        }
    }
    if reader.has_overlapping_files().map_err(damaged("archive"))? {
        return Err(EvidenceError::entry("archive", "has overlapping entries"));
    }
    let Some((index, _)) = files.remove(MANIFEST) else {
        return Err(EvidenceError::entry(MANIFEST, "is missing"));
    };
    let rows = manifest::read(&read_manifest(&mut reader, index)?)?;
    let named: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| row.files.iter().map(String::as_str))
        .collect();
    for row in &rows {
        if let Some(missing) = row.files.iter().find(|name| !files.contains_key(*name)) {
            let problem = format!(
                "is missing from the archive, but line {} lists it",
                row.line
            );
            return Err(EvidenceError::entry(missing, problem));
        }
    }
    if let Some(extra) = files.keys().find(|name| !named.contains(name.as_str())) {
        return Err(EvidenceError::entry(extra, "isn't listed in the manifest"));
    }
    let files = files
        .into_iter()
        .map(|(name, (index, size))| (name, index, size))
        .collect();
    Ok(CheckedArchive {
        rows,
        unpacking: Unpacking { reader, files },
    })
}

/// The entry's unpacked size.
fn check_entry(
    reader: &Reader,
    index: usize,
    name: &str,
    limits: &Limits,
) -> Result<u64, EvidenceError> {
    let reject = |problem: String| Err(EvidenceError::entry(name, problem));
    if let Some(problem) = name_problem(name) {
        return reject(problem);
    }
    let entry = reader.by_index_data(index).map_err(damaged(name))?;
    let is_dir = name.ends_with('/');
    let kind = entry.unix_mode().map_or(0, |mode| mode & 0o170_000);
    if entry.is_symlink() || !matches!(kind, 0 | 0o100_000 | 0o040_000) {
        return reject("is a link or another special file".to_owned());
    }
    if entry.encrypted() {
        return reject("is encrypted".to_owned());
    }
    let known = [CompressionMethod::Stored, CompressionMethod::Deflated];
    if !known.contains(&entry.compression()) {
        return reject("uses an unsupported compression method; use deflate".to_owned());
    }
    let (packed, size) = (entry.compressed_size(), entry.size());
    if is_dir {
        return if size == 0 {
            Ok(0)
        } else {
            reject("is a directory with content".to_owned())
        };
    }
    if size > limits.max_file.as_u64() {
        return reject(format!("is larger than {} when unpacked", limits.max_file));
    }
    if size > RATIO_EXEMPT && size > packed.saturating_mul(limits.max_ratio) {
        return reject(format!(
            "unpacks to more than {} times its size",
            limits.max_ratio
        ));
    }
    Ok(size)
}

fn name_problem(name: &str) -> Option<String> {
    let path = name.strip_suffix('/').unwrap_or(name);
    if path.is_empty() {
        return Some("has no name".to_owned());
    }
    if path.len() > 255 {
        return Some("has a name of more than 255 bytes".to_owned());
    }
    if let Some(problem) = path_problem(path) {
        return Some(format!("has a name that {problem}"));
    }
    if name.chars().any(char::is_control) {
        return Some("has a control character in its name".to_owned());
    }
    None
}

fn read_manifest(reader: &mut Reader, index: usize) -> Result<String, EvidenceError> {
    let entry = reader.by_index(index).map_err(damaged(MANIFEST))?;
    let mut bytes = Vec::new();
    let read = entry.take(MAX_MANIFEST_SIZE + 1).read_to_end(&mut bytes);
    read.map_err(|error| EvidenceError::entry(MANIFEST, format!("is damaged: {error}")))?;
    if u64::try_from(bytes.len()).is_ok_and(|size| size > MAX_MANIFEST_SIZE) {
        let problem = format!("is larger than {MAX_MANIFEST_SIZE} bytes");
        return Err(EvidenceError::entry(MANIFEST, problem));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        EvidenceError::entry(MANIFEST, format!("is not UTF-8 (byte {at})"))
    })
}

pub(super) fn damaged(entry: &str) -> impl Fn(zip::result::ZipError) -> EvidenceError + '_ {
    move |error| EvidenceError::entry(entry, format!("is damaged: {error}"))
}
