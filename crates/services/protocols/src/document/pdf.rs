//! Reads PDFs in a child process.
//!
//! A PDF is untrusted input, and parsers can loop forever, overflow the stack or exhaust memory. The child runs under
//! resource limits of the kernel, so a hostile file costs one child and becomes a clear error.

use std::{
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use bytes::Bytes;
use nix::sys::resource::{Resource, setrlimit};
use postrider::failure::{Category, Failure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::layout;
use crate::{settings::Pdf, stage::StageError};

/// Maximum size of the text; the rest is dropped.
const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;

/// Wall-clock timeout of the child, as a multiple of its CPU limit.
const WALL_CLOCK_FACTOR: u32 = 4;

/// Stack size of the parser: PDFs are nested, hostile ones deeply.
const STACK_BYTES: usize = 64 * 1024 * 1024;

const BEGIN_TEXT: &str = "\npostrider-pdf-text\n";
const BEGIN_ERROR: &str = "\npostrider-pdf-refusal\n";
const END: &str = "\npostrider-pdf-end\n";

/// Starts the child processes.
#[derive(Debug, Clone)]
pub struct PdfReader {
    program: PathBuf,
    args: Vec<String>,
    limits: Pdf,
}

impl PdfReader {
    /// Uses this program with these arguments as the child; it must then call [`run_pdf_child`].
    pub fn this_program(args: &[&str], limits: Pdf) -> std::io::Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            limits,
        })
    }

    /// The text of a PDF.
    pub(super) async fn text(&self, pdf: Bytes) -> Result<String, StageError> {
        let limit = self.limits.timeout;
        let (status, output) =
            match tokio::time::timeout(limit * WALL_CLOCK_FACTOR, self.run(pdf)).await {
                Ok(done) => done.map_err(|error| not_run(&error))?,
                Err(_) => return Err(not_run(&"it timed out waiting for CPU")),
            };
        if let Some(text) = between(&output, BEGIN_TEXT) {
            return Ok(text);
        }
        if let Some(why) = between(&output, BEGIN_ERROR) {
            return Err(unreadable(&why));
        }
        Err(exit_error(status, limit))
    }

    async fn run(&self, pdf: Bytes) -> std::io::Result<(ExitStatus, Vec<u8>)> {
        let mut child = tokio::process::Command::new(&self.program)
            .args(&self.args)
            .env(
                "POSTRIDER_PDF_SECONDS",
                self.limits.timeout.as_secs().max(1).to_string(),
            )
            .env(
                "POSTRIDER_PDF_MEMORY",
                self.limits.memory.as_u64().to_string(),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let write = async {
            if let Some(mut stdin) = stdin {
                // A child that died does not read its input; its exit status says more than this error.
                let _ = stdin.write_all(&pdf).await;
            }
        };
        let read = async {
            let mut output = Vec::new();
            if let Some(stdout) = stdout {
                let limit = MAX_TEXT_BYTES as u64 + 1024 * 1024;
                stdout.take(limit).read_to_end(&mut output).await?;
            }
            Ok::<_, std::io::Error>(output)
        };
        let ((), output) = tokio::join!(write, read);
        let output = output?;
        Ok((child.wait().await?, output))
    }
}

/// The child: reads a PDF from standard input, under its limits, and writes its text to standard output.
pub fn run_pdf_child() -> std::io::Result<()> {
    limit("POSTRIDER_PDF_SECONDS", Resource::RLIMIT_CPU, 1)?;
    limit("POSTRIDER_PDF_MEMORY", Resource::RLIMIT_AS, 0)?;
    let mut pdf = Vec::new();
    std::io::stdin().lock().read_to_end(&mut pdf)?;
    let reader = std::thread::Builder::new().stack_size(STACK_BYTES);
    let read = reader.spawn(move || layout::text(&pdf, MAX_TEXT_BYTES))?;
    let (begin, text) = match read.join() {
        Ok(Ok(text)) => (BEGIN_TEXT, text),
        Ok(Err(error)) => (BEGIN_ERROR, error.to_string()),
        Err(_) => (BEGIN_ERROR, "its structure is broken".to_owned()),
    };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(begin.as_bytes())?;
    stdout.write_all(text.as_bytes())?;
    stdout.write_all(END.as_bytes())?;
    stdout.flush()
}

/// The soft limit ends the child by a signal that tells the cause; the hard limit ends it in any case.
fn limit(variable: &str, resource: Resource, slack: u64) -> std::io::Result<()> {
    let Some(value) = std::env::var(variable)
        .ok()
        .and_then(|v| v.parse::<u64>().ok())
    else {
        return Ok(());
    };
    setrlimit(resource, value, value.saturating_add(slack)).map_err(Into::into)
}

fn between(output: &[u8], begin: &str) -> Option<String> {
    let text = String::from_utf8_lossy(output);
    let start = text.find(begin)? + begin.len();
    let end = text.rfind(END)?;
    text.get(start..end).map(str::to_owned)
}

/// The error of a child that wrote nothing.
fn exit_error(status: ExitStatus, limit: Duration) -> StageError {
    use nix::sys::signal::Signal;
    match status.signal().map(Signal::try_from) {
        Some(Ok(Signal::SIGXCPU)) => unreadable(&format!("reading it takes longer than {limit:?}")),
        Some(Ok(Signal::SIGABRT | Signal::SIGSEGV | Signal::SIGBUS)) => {
            unreadable("reading it takes more memory than protocols.pdf.memory allows")
        }
        _ => not_run(&format!("the reader process ended early ({status})")),
    }
}

fn unreadable(why: &str) -> StageError {
    StageError::permanent(
        "unreadable_document",
        "DOCUMENT_UNREADABLE",
        format!("the PDF can't be read: {why}"),
    )
}

fn not_run(why: &dyn std::fmt::Display) -> StageError {
    StageError::transient(Failure::with_category(
        "PDF_READER",
        Category::System,
        format!("could not read the PDF: {why}"),
    ))
}
