//! Where the rows of a file come from: a query, streamed as CSV through COPY, so that memory does not grow with the file.

mod template;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use futures_util::TryStreamExt;
use postrider::pool;
use sqlx::{PgPool, Postgres, pool::PoolConnection, postgres::PgConnectOptions};

pub use template::{Template, TemplateError};

use crate::{file::File, model::Input, settings::SourceSettings};

/// Rows are handed on in pieces of about this size.
const PIECE: usize = 256 * 1024;
const SMALL: usize = 16 * 1024;

/// So long a connection is good for the next file without a question.
const WARM: Duration = Duration::from_secs(1);

/// Why the source can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The query can't be used.
    #[error("exports.source.query: {0}")]
    Query(#[from] TemplateError),
    /// The address can't be read.
    #[error("exports.source.url can't be read")]
    Url(#[source] sqlx::Error),
}

/// The source, opened. Clones share it.
#[derive(Debug, Clone)]
pub struct Source {
    pool: PgPool,
    warm: Arc<Warm>,
    query: Template,
    allow_empty: bool,
}

impl Source {
    /// Opens the configured source with so many connections of its own; without an address it is `own`'s database.
    pub fn open(
        settings: &SourceSettings,
        own: &PgPool,
        connections: u32,
    ) -> Result<Self, SourceError> {
        let options = match &settings.url {
            Some(url) => url
                .as_str()
                .parse::<PgConnectOptions>()
                .map_err(SourceError::Url)?,
            None => own.connect_options().as_ref().clone(),
        };
        let pool = pool::options()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(10))
            .connect_lazy_with(options);
        Ok(Self {
            pool,
            warm: Arc::default(),
            query: Template::parse(&settings.query)?,
            allow_empty: settings.allow_empty,
        })
    }

    /// May a file have no rows?
    #[must_use]
    pub const fn allows_empty(&self) -> bool {
        self.allow_empty
    }

    /// Begins to read the rows for an input.
    pub(crate) async fn rows(&self, input: &Input) -> Result<Rows, sqlx::Error> {
        let date = format!("{:08}", input.effective_date);
        let query = self
            .query
            .fill([&input.index_key, &date, &input.asof_indicator]);
        let connection = match self.warm.take() {
            Some(connection) => connection,
            None => self.pool.acquire().await?,
        };
        Ok(Rows {
            connection: Some(connection),
            warm: Arc::clone(&self.warm),
            statement: format!("copy ({query}) to stdout (format csv, header)"),
        })
    }
}

/// Connections that were used just now: giving one back to the pool is a question to the server, which small files would
/// feel.
#[derive(Debug, Default)]
struct Warm(Mutex<Vec<(PoolConnection<Postgres>, Instant)>>);

impl Warm {
    fn take(&self) -> Option<PoolConnection<Postgres>> {
        let mut warm = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The others go back to the pool.
        warm.retain(|(_, used)| used.elapsed() < WARM);
        warm.pop().map(|(connection, _)| connection)
    }

    fn put(&self, connection: PoolConnection<Postgres>) {
        let mut warm = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        warm.push((connection, Instant::now()));
    }
}

/// The rows for one input, not read yet.
pub(crate) struct Rows {
    connection: Option<PoolConnection<Postgres>>,
    warm: Arc<Warm>,
    statement: String,
}

/// What ended the reading early.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The source failed.
    Source(sqlx::Error),
    /// The file could not be written.
    Sink(postrider_blob::Error),
}

impl Rows {
    /// Writes everything to the file; says whether there was any row below the header.
    pub async fn pour(mut self, file: &mut File) -> Result<bool, Ended> {
        let Some(connection) = self.connection.as_deref_mut() else {
            return Ok(false);
        };
        let copied = connection.copy_out_raw(&self.statement).await;
        let mut stream = copied.map_err(Ended::Source)?;
        // Most files are small; a large one makes itself room.
        let mut piece = BytesMut::with_capacity(SMALL);
        let mut header = Header::default();
        while let Some(row) = stream.try_next().await.map_err(Ended::Source)? {
            header.saw(&row);
            piece.extend_from_slice(&row);
            if piece.len() >= PIECE {
                let full = piece.split().freeze();
                file.write(full).await.map_err(Ended::Sink)?;
                piece.reserve(PIECE + PIECE / 8);
            }
        }
        drop(stream);
        if !piece.is_empty() {
            file.write(piece.freeze()).await.map_err(Ended::Sink)?;
        }
        // Everything was read: others may use the connection.
        if let Some(connection) = self.connection.take() {
            self.warm.put(connection);
        }
        Ok(header.has_rows_below())
    }
}

impl Drop for Rows {
    /// A connection in the middle of a COPY is of no use to anybody.
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(connection.detach());
        }
    }
}

/// Finds the end of the header, whose names may have line breaks in them.
#[derive(Debug, Default)]
struct Header {
    quoted: bool,
    ended: bool,
    below: bool,
}

impl Header {
    fn saw(&mut self, bytes: &[u8]) {
        if self.below {
            return;
        }
        for byte in bytes {
            if self.ended {
                self.below = true;
                return;
            }
            match byte {
                b'"' => self.quoted = !self.quoted,
                b'\n' if !self.quoted => self.ended = true,
                _ => {}
            }
        }
    }

    const fn has_rows_below(&self) -> bool {
        self.below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_rows(pieces: &[&str]) -> bool {
        let mut header = Header::default();
        pieces.iter().for_each(|piece| header.saw(piece.as_bytes()));
        header.has_rows_below()
    }

    #[test]
    fn a_header_alone_has_no_rows_below() {
        assert!(!has_rows(&["a,b\n"]));
        assert!(!has_rows(&["\"a\n\",", "\"b\"\"\n\"\n"]));
        assert!(has_rows(&["a,b\n", "1,2\n"]));
        assert!(has_rows(&["a,b\n1,2\n"]));
        assert!(has_rows(&["a,b\n\n"]));
    }
}
