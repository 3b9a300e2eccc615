//! A panic where none should be: a bug of ours or of the driver. It must cost what it hit and no more: a part of a
//! worker that vanished silently would leave items leased for ever, renewed by the parts that live on.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use crate::{Error, Result};

/// Turns a panic in this call into an error.
pub async fn catch_panic<T>(
    what: &'static str,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    AssertUnwindSafe(call)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| {
            tracing::error!(what, "panicked; going on");
            Err(Error::Panicked(what))
        })
}
