//! Inspects a data directory without starting anything.

use std::os::unix::net::UnixStream;
use std::path::Path;

use sqlx::postgres::PgConnectOptions;

use crate::error::Error;
use crate::layout::Layout;
use crate::{DATABASE, server};

/// State of a data directory.
#[derive(Debug, Clone)]
pub enum Presence {
    /// No cluster yet.
    Absent,
    /// A cluster whose server isn't running.
    Stopped,
    /// A cluster whose server is running, most likely under another program; connect with these options.
    Running(Box<PgConnectOptions>),
}

/// Inspects a data directory. Changes nothing and takes no lock, so a program that starts meanwhile isn't disturbed.
pub fn presence(data_dir: &Path) -> Result<Presence, Error> {
    let layout = Layout::of(data_dir)?;
    if layout.cluster_version()?.is_none() {
        return Ok(Presence::Absent);
    }
    // A socket left by a crash accepts no connection.
    let socket = layout.socket_dir.join(".s.PGSQL.5432");
    Ok(match UnixStream::connect(socket) {
        Ok(_) => {
            let options = server::connect_options(&layout.socket_dir).database(DATABASE);
            Presence::Running(Box::new(options))
        }
        Err(_) => Presence::Stopped,
    })
}
