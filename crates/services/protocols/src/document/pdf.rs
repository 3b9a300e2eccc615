//! PDF in a process of its own.
//!
//! A PDF comes from strangers, and a reader of PDF has many ways to go wrong: endless loops, stacks and heaps without
//! end. So a child process reads it, under limits of the kernel, and whatever becomes of the child, this process goes on
//! and knows what to say.

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
use crate::{settings::Pdf, stage::Trouble};

/// No protocol has more text; what follows is left out.
const LONGEST_TEXT: usize = 16 * 1024 * 1024;

/// The reader may wait for its turn so many times longer than it may compute.
const WAIT: u32 = 4;

/// The reader's own stack: PDF is nested, and the hostile kind deeply.
const STACK: usize = 64 * 1024 * 1024;

const BEGIN_TEXT: &str = "\npostrider-pdf-text\n";
const BEGIN_REFUSAL: &str = "\npostrider-pdf-refusal\n";
const END: &str = "\npostrider-pdf-end\n";

/// Starts the readers.
#[derive(Debug, Clone)]
pub struct PdfReader {
    program: PathBuf,
    args: Vec<String>,
    limits: Pdf,
}

impl PdfReader {
    /// This very program reads, when called with these words; it must then call [`text_of_pdf_child`].
    pub fn this_program(args: &[&str], limits: Pdf) -> std::io::Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            limits,
        })
    }

    /// The text of a PDF.
    pub(super) async fn text(&self, pdf: Bytes) -> Result<String, Trouble> {
        let limit = self.limits.timeout;
        let (status, output) = match tokio::time::timeout(limit * WAIT, self.run(pdf)).await {
            Ok(done) => done.map_err(|error| not_run(&error))?,
            Err(_) => return Err(not_run(&"it got too little of the machine")),
        };
        if let Some(text) = between(&output, BEGIN_TEXT) {
            return Ok(text);
        }
        if let Some(why) = between(&output, BEGIN_REFUSAL) {
            return Err(unreadable(&why));
        }
        Err(ended(status, limit))
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
        let give = async {
            if let Some(mut stdin) = stdin {
                // A reader that has died does not read: how it ended says more than this error.
                let _ = stdin.write_all(&pdf).await;
            }
        };
        let take = async {
            let mut output = Vec::new();
            if let Some(stdout) = stdout {
                let most = LONGEST_TEXT as u64 + 1024 * 1024;
                stdout.take(most).read_to_end(&mut output).await?;
            }
            Ok::<_, std::io::Error>(output)
        };
        let ((), output) = tokio::join!(give, take);
        let output = output?;
        Ok((child.wait().await?, output))
    }
}

/// What the child does: reads a PDF from standard input, under its limits, and writes its text to standard output.
pub fn text_of_pdf_child() -> std::io::Result<()> {
    limit("POSTRIDER_PDF_SECONDS", Resource::RLIMIT_CPU, 1)?;
    limit("POSTRIDER_PDF_MEMORY", Resource::RLIMIT_AS, 0)?;
    let mut pdf = Vec::new();
    std::io::stdin().lock().read_to_end(&mut pdf)?;
    let reader = std::thread::Builder::new().stack_size(STACK);
    let read = reader.spawn(move || layout::text(&pdf, LONGEST_TEXT))?;
    let (begin, said) = match read.join() {
        Ok(Ok(text)) => (BEGIN_TEXT, text),
        Ok(Err(error)) => (BEGIN_REFUSAL, error.to_string()),
        Err(_) => (BEGIN_REFUSAL, "its structure is broken".to_owned()),
    };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(begin.as_bytes())?;
    stdout.write_all(said.as_bytes())?;
    stdout.write_all(END.as_bytes())?;
    stdout.flush()
}

/// The soft limit ends the child by a signal that tells the cause; the hard one ends it in any case.
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

/// How the child ended when it said nothing.
fn ended(status: ExitStatus, limit: Duration) -> Trouble {
    use nix::sys::signal::Signal;
    match status.signal().map(Signal::try_from) {
        Some(Ok(Signal::SIGXCPU)) => unreadable(&format!("reading it takes longer than {limit:?}")),
        Some(Ok(Signal::SIGABRT | Signal::SIGSEGV | Signal::SIGBUS)) => {
            unreadable("reading it takes more memory than protocols.pdf.memory allows")
        }
        _ => not_run(&format!("its reader ended early ({status})")),
    }
}

fn unreadable(why: &str) -> Trouble {
    Trouble::permanent(
        "unreadable_document",
        "DOCUMENT_UNREADABLE",
        format!("the PDF can't be read: {why}"),
    )
}

fn not_run(why: &dyn std::fmt::Display) -> Trouble {
    Trouble::transient(Failure::with_category(
        "PDF_READER",
        Category::System,
        format!("the PDF could not be read this time: {why}"),
    ))
}
