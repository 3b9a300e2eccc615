//! The archive's own list of its entries, read before anything is believed.
//!
//! The reader of archives loads the whole list into memory and keeps one of two entries with the same name. So the
//! list is walked here first: it may not be longer than allowed, and no name may stand in it twice.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};

use super::Refused;

const END: [u8; 4] = *b"PK\x05\x06";
const END_64_LOCATOR: [u8; 4] = *b"PK\x06\x07";
const END_64: [u8; 4] = *b"PK\x06\x06";
const ENTRY: [u8; 4] = *b"PK\x01\x02";

/// The end record and the longest comment.
const TAIL: u64 = 22 + 65_535;

/// No list of allowed length is larger.
const LARGEST: u64 = 64 * 1024 * 1024;

/// The longest name.
const LONGEST_NAME: usize = 1024;

/// The names in the list, in their order; none twice.
pub(super) fn names(file: &mut File, most: usize) -> Result<Vec<String>, Refused> {
    walk(file, most).map_err(|error| match error {
        Trouble::Refused(refused) => refused,
        Trouble::Io(error) if error.kind() == ErrorKind::UnexpectedEof => truncated(),
        Trouble::Io(error) => Refused::Disk(error),
    })
}

enum Trouble {
    Refused(Refused),
    Io(std::io::Error),
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Refused> for Trouble {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

fn walk(file: &mut File, most: usize) -> Result<Vec<String>, Trouble> {
    let (count, size, start) = end(file)?;
    if count > u64::try_from(most).unwrap_or(u64::MAX) {
        let problem = format!("has {count} entries; at most {most} are taken");
        return Err(Refused::entry("archive", problem).into());
    }
    if size > LARGEST {
        return Err(Refused::entry("archive", "has too long a list of entries").into());
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
            Refused::entry(shown, "has a name that is not UTF-8")
        })?;
        if name.len() > LONGEST_NAME {
            return Err(Refused::entry(name, "has too long a name").into());
        }
        if !seen.insert(name.clone()) {
            return Err(Refused::entry(name, "stands twice in the archive").into());
        }
        names.push(name);
    }
    file.rewind()?;
    Ok(names)
}

/// How many entries, how long their list is and where it begins.
fn end(file: &mut File) -> Result<(u64, u64, u64), Trouble> {
    let length = file.seek(SeekFrom::End(0))?;
    let tail = length.min(TAIL);
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
        at.ok_or_else(|| Refused::entry("archive", "is no ZIP archive, or its end is missing"))?;
    let record = length - tail + u64::try_from(at).unwrap_or(u64::MAX);
    let count = u64::from(u16_at(&bytes, at + 10));
    let size = u64::from(u32_at(&bytes, at + 12));
    let large = count == 0xffff || size == 0xffff_ffff || u32_at(&bytes, at + 16) == u32::MAX;
    if !large {
        return Ok((count, size, record.checked_sub(size).ok_or_else(truncated)?));
    }
    // Beyond 65,535 entries or 4 GB another record says it, and a locator in front of ours where that is.
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

fn truncated() -> Refused {
    Refused::entry("archive", "is damaged: its list of entries can't be read")
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
