//! Everything about an archive that can be known before it is unpacked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Read};

use zip::{CompressionMethod, ZipArchive};

use super::{Refused, directory, manifest};
use crate::{model::wrong_with_path, settings::Ingest as Limits};

/// The entry that says what belongs to which case.
const MANIFEST: &str = "manifest.csv";

/// The largest manifest.
const LARGEST_MANIFEST: u64 = 16 * 1024 * 1024;

/// A small entry may be larger than the ratio allows: it does no harm.
const SLACK: u64 = 64 * 1024;

/// The reader of an archive in a file.
pub(super) type Reader = ZipArchive<BufReader<File>>;

/// An archive that may be unpacked.
pub(super) struct Checked {
    rows: Vec<manifest::Row>,
    unpacking: Unpacking,
}

/// What is to be unpacked.
pub(super) struct Unpacking {
    pub reader: Reader,
    /// Each file's place in the archive and its announced size.
    pub files: Vec<(String, usize, u64)>,
}

impl Checked {
    pub(super) fn into_parts(self) -> (Vec<manifest::Row>, Unpacking) {
        (self.rows, self.unpacking)
    }
}

/// Checks names, kinds, sizes and the manifest.
pub(super) fn check(mut file: File, limits: &Limits) -> Result<Checked, Refused> {
    let names = directory::names(&mut file, limits.max_entries)?;
    let mut reader = ZipArchive::new(BufReader::new(file)).map_err(|error| {
        Refused::entry("archive", format!("is no readable ZIP archive: {error}"))
    })?;
    if reader.len() != names.len() {
        return Err(Refused::entry("archive", "contradicts itself"));
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
            return Err(Refused::entry(name, problem));
        }
        if !name.ends_with('/') {
            files.insert(name, (index, size));
        }
    }
    if reader.has_overlapping_files().map_err(damaged("archive"))? {
        return Err(Refused::entry("archive", "has entries that overlap"));
    }
    let Some((index, _)) = files.remove(MANIFEST) else {
        return Err(Refused::entry(MANIFEST, "is missing"));
    };
    let rows = manifest::read(&read_manifest(&mut reader, index)?)?;
    let named: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| row.files.iter().map(String::as_str))
        .collect();
    for row in &rows {
        if let Some(missing) = row.files.iter().find(|name| !files.contains_key(*name)) {
            let problem = format!("is not in the archive, but line {} names it", row.line);
            return Err(Refused::entry(missing, problem));
        }
    }
    if let Some(extra) = files.keys().find(|name| !named.contains(name.as_str())) {
        return Err(Refused::entry(extra, "is named by no row of the manifest"));
    }
    let files = files
        .into_iter()
        .map(|(name, (index, size))| (name, index, size))
        .collect();
    Ok(Checked {
        rows,
        unpacking: Unpacking { reader, files },
    })
}

/// The entry's size, if it may be unpacked.
fn check_entry(reader: &Reader, index: usize, name: &str, limits: &Limits) -> Result<u64, Refused> {
    let refuse = |problem: String| Err(Refused::entry(name, problem));
    if let Some(problem) = wrong_with_name(name) {
        return refuse(problem);
    }
    let entry = reader.by_index_data(index).map_err(damaged(name))?;
    let is_dir = name.ends_with('/');
    let kind = entry.unix_mode().map_or(0, |mode| mode & 0o170_000);
    if entry.is_symlink() || !matches!(kind, 0 | 0o100_000 | 0o040_000) {
        return refuse("is a link or another special file".to_owned());
    }
    if entry.encrypted() {
        return refuse("is encrypted".to_owned());
    }
    let known = [CompressionMethod::Stored, CompressionMethod::Deflated];
    if !known.contains(&entry.compression()) {
        return refuse("is compressed in a way that is not taken; use deflate".to_owned());
    }
    let (packed, size) = (entry.compressed_size(), entry.size());
    if is_dir {
        return if size == 0 {
            Ok(0)
        } else {
            refuse("is a directory with content".to_owned())
        };
    }
    if size > limits.max_file.as_u64() {
        return refuse(format!("is larger than {} when unpacked", limits.max_file));
    }
    if size > SLACK && size > packed.saturating_mul(limits.max_ratio) {
        return refuse(format!(
            "unpacks to more than {} times its size",
            limits.max_ratio
        ));
    }
    Ok(size)
}

fn wrong_with_name(name: &str) -> Option<String> {
    let path = name.strip_suffix('/').unwrap_or(name);
    if path.is_empty() {
        return Some("has no name".to_owned());
    }
    if path.len() > 255 {
        return Some("has a name of more than 255 bytes".to_owned());
    }
    if let Some(problem) = wrong_with_path(path) {
        return Some(format!("has a name that {problem}"));
    }
    if name.chars().any(char::is_control) {
        return Some("has a control character in its name".to_owned());
    }
    None
}

fn read_manifest(reader: &mut Reader, index: usize) -> Result<String, Refused> {
    let entry = reader.by_index(index).map_err(damaged(MANIFEST))?;
    let mut bytes = Vec::new();
    let read = entry.take(LARGEST_MANIFEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| Refused::entry(MANIFEST, format!("is damaged: {error}")))?;
    if u64::try_from(bytes.len()).is_ok_and(|size| size > LARGEST_MANIFEST) {
        let problem = format!("is larger than {LARGEST_MANIFEST} bytes");
        return Err(Refused::entry(MANIFEST, problem));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Refused::entry(MANIFEST, format!("is not UTF-8 (byte {at})"))
    })
}

pub(super) fn damaged(entry: &str) -> impl Fn(zip::result::ZipError) -> Refused + '_ {
    move |error| Refused::entry(entry, format!("is damaged: {error}"))
}
