//! The server's log: bounded in size; its last lines go into error messages.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The log is rotated at this size; one old file is kept.
const MAX_SIZE: u64 = 16 * 1024 * 1024;
/// How much of the log goes into an error message.
const TAIL_BYTES: u64 = 4096;
const TAIL_LINES: usize = 20;

/// The log of one run of the server.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    /// Where this run begins.
    from: u64,
}

impl Log {
    /// Opens the log for a new run; the file becomes the server's output.
    pub(crate) fn open(path: &Path) -> Result<(Self, File), Error> {
        // Append mode: after a rotation the server writes at the new end.
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

    /// Rotates a large file. The server keeps its descriptor, so the content is copied and the file
    /// truncated; a line written in between is lost.
    pub(crate) fn trim(&mut self) {
        let size = std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len());
        if size <= MAX_SIZE {
            return;
        }
        let kept = self.path.with_extension("log.old");
        let trimmed = std::fs::copy(&self.path, kept)
            .and_then(|_| File::options().write(true).open(&self.path))
            .and_then(|file| file.set_len(0));
        self.from = 0;
        if let Err(error) = trimmed {
            tracing::warn!(%error, log = %self.path.display(), "could not rotate the PostgreSQL log; it keeps growing");
        }
    }

    /// The last lines of this run.
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
    fn the_log_is_bounded_and_its_writer_continues() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("server.log");
        let (mut log, mut writer) = Log::open(&path).unwrap();
        writer
            .write_all(&vec![b'x'; MAX_SIZE as usize + 1])
            .unwrap();
        log.trim();
        writer.write_all(b"after\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "after\n");
        assert_eq!(log.tail(), "after");
        let kept = path.with_extension("log.old");
        assert_eq!(kept.metadata().unwrap().len(), MAX_SIZE + 1);
    }

    #[test]
    fn the_tail_covers_this_run_only() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("server.log");
        std::fs::write(&path, "an earlier run\n").unwrap();
        let (log, mut writer) = Log::open(&path).unwrap();
        assert_eq!(log.tail(), "(nothing)");
        for n in 0..100 {
            writeln!(writer, "line {n}").unwrap();
        }
        assert!(log.tail().starts_with("line 80\n"), "{}", log.tail());
    }
}
