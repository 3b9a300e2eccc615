//! The rows of a file: a query, streamed as CSV through COPY, so that memory doesn't grow with the file.

mod template;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use futures_util::TryStreamExt;
use postrider::internal::pool;
use sqlx::{PgPool, Postgres, pool::PoolConnection, postgres::PgConnectOptions};

pub use template::{Template, TemplateError};

use crate::{file::File, model::Input, settings::SourceSettings};

/// Size of the chunks that are written to the file, approximately.
const CHUNK_SIZE: usize = 256 * 1024;

/// Initial buffer; most files are small.
const INITIAL_BUFFER: usize = 16 * 1024;

/// A connection that was used within this time is reused without a check.
const WARM_FOR: Duration = Duration::from_secs(1);

const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// Opens the configured source with a pool of its own; without an address, on `own`'s database.
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
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_lazy_with(options);
        Ok(Self {
            pool,
            warm: Arc::default(),
            query: Template::parse(&settings.query)?,
            allow_empty: settings.allow_empty,
        })
    }

    /// Whether a file may have no rows.
    #[must_use]
    pub const fn allows_empty(&self) -> bool {
        self.allow_empty
    }

    /// Prepares reading the rows for an input.
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

/// Recently used connections: returning one to the pool costs a round trip, which is noticeable with small files.
#[derive(Debug, Default)]
struct Warm(Mutex<Vec<(PoolConnection<Postgres>, Instant)>>);

impl Warm {
    fn take(&self) -> Option<PoolConnection<Postgres>> {
        let mut warm = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Dropping returns the others to the pool.
        warm.retain(|(_, used)| used.elapsed() < WARM_FOR);
        warm.pop().map(|(connection, _)| connection)
    }

    fn put(&self, connection: PoolConnection<Postgres>) {
        let mut warm = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        warm.push((connection, Instant::now()));
    }
}

/// The unread rows for one input.
pub(crate) struct Rows {
    connection: Option<PoolConnection<Postgres>>,
    warm: Arc<Warm>,
    statement: String,
}

/// Why copying the rows failed.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// The source can't be read.
    Source(sqlx::Error),
    /// The file can't be written.
    Store(postrider_blob::Error),
}

impl Rows {
    /// Copies everything to the file; returns whether there was any row below the header.
    pub async fn copy_to(mut self, file: &mut File) -> Result<bool, CopyError> {
        let Some(connection) = self.connection.as_deref_mut() else {
            return Ok(false);
        };
        let copied = connection.copy_out_raw(&self.statement).await;
        let mut stream = copied.map_err(CopyError::Source)?;
        let mut chunk = BytesMut::with_capacity(INITIAL_BUFFER);
        let mut header = Header::default();
        while let Some(row) = stream.try_next().await.map_err(CopyError::Source)? {
            header.scan(&row);
            chunk.extend_from_slice(&row);
            if chunk.len() >= CHUNK_SIZE {
                let full = chunk.split().freeze();
                file.write(full).await.map_err(CopyError::Store)?;
                chunk.reserve(CHUNK_SIZE + CHUNK_SIZE / 8);
            }
        }
        drop(stream);
        if !chunk.is_empty() {
            file.write(chunk.freeze()).await.map_err(CopyError::Store)?;
        }
        // Everything was read, so the connection can be reused.
        if let Some(connection) = self.connection.take() {
            self.warm.put(connection);
        }
        Ok(header.has_rows_below())
    }
}

impl Drop for Rows {
    /// A connection in the middle of a COPY can't be reused.
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(connection.detach());
        }
    }
}

/// Finds the end of the CSV header, whose names may contain line breaks.
#[derive(Debug, Default)]
struct Header {
    quoted: bool,
    ended: bool,
    below: bool,
}

impl Header {
    fn scan(&mut self, bytes: &[u8]) {
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
        pieces
            .iter()
            .for_each(|piece| header.scan(piece.as_bytes()));
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
