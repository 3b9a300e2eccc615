//! Accepts connections until told to stop, then lets the requests in flight finish.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A connection that has not sent its request's head by then is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// How long to wait when no connection can be accepted, e.g. because too many files are open.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop`, then drains for at most `drain`. True if every request in flight was answered.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    drain: Duration,
    stop: CancellationToken,
) -> bool {
    let connections = GracefulShutdown::new();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        // Answers are written whole: waiting for more to send only adds delay.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    // New callers are refused from here on, instead of waiting for an answer that never comes.
    drop(listener);
    let open = connections.count();
    if open > 0 {
        tracing::info!(open, "waiting for requests in flight");
    }
    let drained = tokio::time::timeout(drain, connections.shutdown())
        .await
        .is_ok();
    if !drained {
        tracing::warn!(
            "requests were still in flight after server.drain_timeout; they are cut off"
        );
    }
    drained
}
