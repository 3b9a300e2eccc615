//! What is in a data directory, for those who want to look and not to start anything.

use std::os::unix::net::UnixStream;
use std::path::Path;

use sqlx::postgres::PgConnectOptions;

use crate::error::Error;
use crate::layout::Layout;
use crate::{DATABASE, server};

/// What a data directory holds.
#[derive(Debug, Clone)]
pub enum Presence {
    /// No cluster yet.
    Absent,
    /// A cluster whose server does not run.
    Stopped,
    /// A cluster whose server runs, most likely under another program; this is how to connect to it.
    Running(Box<PgConnectOptions>),
}

/// Looks at a data directory and changes nothing, not even a lock: a program that starts at this moment is not in the way.
pub fn presence(data_dir: &Path) -> Result<Presence, Error> {
    let layout = Layout::of(data_dir)?;
    if layout.cluster_version()?.is_none() {
        return Ok(Presence::Absent);
    }
    // A socket that a crash left behind accepts nobody.
    let socket = layout.socket_dir.join(".s.PGSQL.5432");
    Ok(match UnixStream::connect(socket) {
        Ok(_) => {
            let options = server::connect_options(&layout.socket_dir).database(DATABASE);
            Presence::Running(Box::new(options))
        }
        Err(_) => Presence::Stopped,
    })
}
