//! Accepts connections until the stop, then lets requests in flight finish.

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

/// Timeout for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Pause after a connection could not be accepted, e.g. because too many files are open.
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
                    tracing::warn!(%error, "can't accept a connection; retrying");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        // Responses are written as a whole: waiting for more data only adds latency.
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
    // From here on new connections are refused instead of waiting for a response that never comes.
    drop(listener);
    let open = connections.count();
    if open > 0 {
        tracing::info!(open, "waiting for requests in flight");
    }
    let drained = tokio::time::timeout(drain, connections.shutdown())
        .await
        .is_ok();
    if !drained {
        tracing::warn!("requests still in flight after server.drain_timeout were aborted");
    }
    drained
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        sync::Notify,
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    /// A server with one route that responds on demand.
    struct Slow {
        entered: Arc<Notify>,
        answer: Arc<Notify>,
        stop: CancellationToken,
        address: std::net::SocketAddr,
        server: tokio::task::JoinHandle<bool>,
    }

    async fn slow(drain: Duration) -> Slow {
        let (entered, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let signals = (entered.clone(), answer.clone());
        let route = get(move || async move {
            signals.0.notify_one();
            signals.1.notified().await;
            "done"
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(
            listener,
            Router::new().route("/", route),
            drain,
            stop.clone(),
        ));
        Slow {
            entered,
            answer,
            stop,
            address,
            server,
        }
    }

    async fn request(address: std::net::SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .expect("sent");
        stream
    }

    #[tokio::test]
    async fn a_request_in_flight_is_answered_after_the_stop() {
        let slow = slow(LONG).await;
        let mut stream = request(slow.address).await;
        slow.entered.notified().await;
        slow.stop.cancel();
        // The port is closed before the response is sent, so no new connection comes in.
        while TcpStream::connect(slow.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        slow.answer.notify_one();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"),
            "{answer}"
        );
        assert!(slow.server.await.expect("ended"), "everything was drained");
    }

    #[tokio::test]
    async fn an_endless_request_does_not_block_the_stop() {
        let slow = slow(Duration::from_millis(20)).await;
        let _stream = request(slow.address).await;
        slow.entered.notified().await;
        slow.stop.cancel();
        assert!(
            !slow.server.await.expect("ended"),
            "one request was cut off"
        );
    }

    #[tokio::test]
    async fn an_idle_connection_does_not_delay_the_stop() {
        let slow = slow(LONG).await;
        slow.answer.notify_one();
        let mut stream = request(slow.address).await;
        let mut head = [0; 15];
        stream.read_exact(&mut head).await.expect("answered");
        slow.stop.cancel();
        assert!(slow.server.await.expect("ended"));
    }
}
