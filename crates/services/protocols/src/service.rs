//! The facade that HTTP, the console and tests call: accept, get, list, retry, review.

mod accept;
pub(crate) mod transitions;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use postrider::{lease::Operator, wake::Waker};
use postrider_blob::{Error as StoreError, Key, Store};
use postrider_inspect::timeline::Timeline;
use postrider_web::{Cursor, Limit, Page, Problem, list_id};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    OUTBOX, ProtocolError, Settings,
    document::Media,
    gauges,
    model::{Decision, ProtocolView, Status, Summary, Uploaded},
    store::{self, ProtocolRow},
    timeline,
};

pub use accept::Upload;

/// The listing's name in its cursors.
const LIST: &str = "protocols";

/// The protocols service. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Protocols(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    store: Store,
    waker: Waker,
    max_size: usize,
    archive_after: Duration,
}

/// A document as it was uploaded.
pub(crate) struct StoredDocument {
    pub media: Media,
    pub content: BoxStream<'static, Result<Bytes, StoreError>>,
}

impl Protocols {
    /// Starts the service. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(pool: PgPool, store: Store, settings: &Settings) -> Self {
        gauges::register();
        Self(Arc::new(Inner {
            waker: Waker::new(pool.clone()),
            pool,
            store,
            max_size: usize::try_from(settings.max_size.as_u64()).unwrap_or(usize::MAX),
            archive_after: settings.archive_after,
        }))
    }

    /// The maximum size of a document, in bytes.
    pub(crate) fn max_size(&self) -> usize {
        self.0.max_size
    }

    /// Accepts a document. Returns once that is durable.
    pub async fn accept(&self, upload: Upload) -> Result<Uploaded, ProtocolError> {
        let uploaded = accept::accept(&self.0.pool, &self.0.store, upload).await?;
        self.0.waker.wake(&OUTBOX);
        Ok(uploaded)
    }

    /// The protocol with this id. A dead letter that is due for the archive is archived first.
    pub async fn get(&self, id: Uuid) -> Result<Option<ProtocolView>, ProtocolError> {
        let Inner {
            pool,
            archive_after,
            ..
        } = &*self.0;
        let mut row = store::get(pool, id).await?;
        let is_dead = |row: &ProtocolRow| row.status == Status::DeadLetter;
        if row.as_ref().is_some_and(is_dead)
            && transitions::archive(pool, id, *archive_after).await?
        {
            row = store::get(pool, id).await?;
        }
        Ok(row.map(ProtocolView::from))
    }

    /// The document of the protocol with this id.
    pub(crate) async fn document(&self, id: Uuid) -> Result<Option<StoredDocument>, Problem> {
        let Some(row) = store::get(&self.0.pool, id).await? else {
            return Ok(None);
        };
        let key = Key::parse(&row.document_key).map_err(Problem::internal)?;
        let content = self.0.store.read(&key).await.map_err(ProtocolError::from)?;
        Ok(Some(StoredDocument {
            media: Media::parse(&row.media_type).unwrap_or(Media::Text),
            content,
        }))
    }

    /// One page of protocols, newest first. Without a status: all but the archived ones.
    pub async fn list(
        &self,
        status: Option<Status>,
        cursor: Option<&Cursor>,
        limit: Limit,
    ) -> Result<Page<Summary>, Problem> {
        let list = list_id(LIST, &status)?;
        let before = cursor.map(|cursor| cursor.decode(&list)).transpose()?;
        let rows = store::list(&self.0.pool, status, before, limit.rows_to_fetch()).await?;
        let page = Page::from_rows(rows, limit, &list, |(seq, _)| *seq)?;
        Ok(page.map(|(_, summary)| summary))
    }

    /// The timeline of the protocol with this id; empty if there is none.
    pub async fn timeline(&self, id: Uuid) -> Result<Vec<Timeline>, sqlx::Error> {
        timeline::timeline(&self.0.pool, id).await
    }

    /// Starts the next try of a failed protocol.
    pub async fn retry(&self, id: Uuid, operator: &Operator) -> Result<(), ProtocolError> {
        transitions::retry(&self.0.pool, id, operator).await?;
        self.0.waker.wake(&OUTBOX);
        Ok(())
    }

    /// Approves the criteria, or rejects them, which needs the operator's reason and starts the next try.
    pub async fn review(
        &self,
        id: Uuid,
        decision: Decision,
        operator: &Operator,
    ) -> Result<(), ProtocolError> {
        transitions::review(&self.0.pool, id, decision, operator).await?;
        self.0.waker.wake(&OUTBOX);
        Ok(())
    }
}
