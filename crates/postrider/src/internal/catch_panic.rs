//! Turns a panic, a bug of ours or of the driver, into an error. A part of a worker that vanished silently would leave
//! items leased forever, renewed by the parts that live on.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use crate::Error;

/// Runs a call; a panic in it becomes [`Error::Panicked`].
pub async fn catch_panic<T, E: From<Error>>(
    what: &'static str,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    AssertUnwindSafe(call)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| {
            tracing::error!(
                what,
                "caught a panic, which is a bug; continuing, please report it"
            );
            Err(Error::Panicked(what).into())
        })
}
