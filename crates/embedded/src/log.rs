//! The server's log: one file that cannot grow for ever, and its last words for error messages.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// At this size the log starts anew; one older file of the same size is kept.
const LIMIT: u64 = 16 * 1024 * 1024;
/// How much of the log an error message carries.
const TAIL_BYTES: u64 = 4096;
const TAIL_LINES: usize = 20;

/// The log of one life of the server.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    /// Where this life's part begins.
    from: u64,
}

impl Log {
    /// Opens the log for a new life; the file goes to the server as its output.
    pub(crate) fn open(path: &Path) -> Result<(Self, File), Error> {
        // Appending, so that the server writes at the new end after a trim.
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(Error::io("open the log", path))?;
        let mut log = Self {
            path: path.to_owned(),
            from: 0,
        };
        log.trim();
        log.from = file
            .metadata()
            .map_err(Error::io("read the log", path))?
            .len();
        Ok((log, file))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Starts the file anew when it is large. The server keeps its descriptor, so the old part is
    /// copied and the file emptied; a line written in between is lost, which a log can bear.
    pub(crate) fn trim(&mut self) {
        let size = std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len());
        if size <= LIMIT {
            return;
        }
        let kept = self.path.with_extension("log.old");
        let trimmed = std::fs::copy(&self.path, kept)
            .and_then(|_| File::options().write(true).open(&self.path))
            .and_then(|file| file.set_len(0));
        self.from = 0;
        if let Err(error) = trimmed {
            tracing::warn!(%error, log = %self.path.display(), "could not trim the PostgreSQL log");
        }
    }

    /// The last lines of this life.
    pub(crate) fn tail(&self) -> String {
        self.read_tail()
            .unwrap_or_else(|error| format!("(the log could not be read: {error})"))
    }

    fn read_tail(&self) -> std::io::Result<String> {
        let mut file = File::open(&self.path)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(
            self.from.max(end.saturating_sub(TAIL_BYTES)),
        ))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(last_lines(&String::from_utf8_lossy(&bytes)))
    }
}

/// The last few lines of a text.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    if lines.is_empty() {
        return "(nothing)".to_owned();
    }
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_log_cannot_grow_for_ever_and_its_writer_goes_on() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("server.log");
        let (mut log, mut writer) = Log::open(&path).unwrap();
        writer.write_all(&vec![b'x'; LIMIT as usize + 1]).unwrap();
        log.trim();
        writer.write_all(b"after\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "after\n");
        assert_eq!(log.tail(), "after");
        let kept = path.with_extension("log.old");
        assert_eq!(kept.metadata().unwrap().len(), LIMIT + 1);
    }

    #[test]
    fn the_tail_is_of_this_life_only() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("server.log");
        std::fs::write(&path, "an earlier life\n").unwrap();
        let (log, mut writer) = Log::open(&path).unwrap();
        assert_eq!(log.tail(), "(nothing)");
        for n in 0..100 {
            writeln!(writer, "line {n}").unwrap();
        }
        assert!(log.tail().starts_with("line 80\n"), "{}", log.tail());
    }
}
