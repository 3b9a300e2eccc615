//! HTTP load: clients with one keep-alive connection each, one request at a time. All on one thread, because they share
//! the machine with the measured system.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Barrier;

/// The result of a load.
#[derive(Debug)]
pub struct LoadResult {
    /// From the first request to the last response.
    pub took: Duration,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
}

impl LoadResult {
    /// Responses per second.
    pub fn rate(&self) -> f64 {
        let responses: u64 = self.statuses.values().sum();
        responses as f64 / self.took.as_secs_f64().max(1e-6)
    }
}

/// Posts `count` bodies from this many clients; `body` creates the nth.
pub async fn post(
    address: SocketAddr,
    path: &'static str,
    clients: u64,
    count: u64,
    body: impl Fn(u64) -> String + Send + Sync + 'static,
) -> Result<LoadResult> {
    let thread = tokio::task::spawn_blocking(move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?
            .block_on(post_all(address, path, clients, count, body))
    });
    thread.await.context("the clients failed")?
}

async fn post_all(
    address: SocketAddr,
    path: &'static str,
    clients: u64,
    count: u64,
    body: impl Fn(u64) -> String + Send + Sync + 'static,
) -> Result<LoadResult> {
    let (body, start) = (Arc::new(body), Arc::new(Barrier::new(clients as usize + 1)));
    let mut running = tokio::task::JoinSet::new();
    for client in 0..clients {
        let (body, start) = (Arc::clone(&body), Arc::clone(&start));
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        running.spawn(async move {
            let mut poster = Client {
                stream,
                buffer: Vec::with_capacity(4096),
            };
            start.wait().await;
            let mut statuses = BTreeMap::new();
            for number in (client..count).step_by(clients as usize) {
                let status = poster.post(path, &body(number)).await?;
                *statuses.entry(status).or_default() += 1;
            }
            Ok::<BTreeMap<u16, u64>, anyhow::Error>(statuses)
        });
    }
    start.wait().await;
    let begun = Instant::now();
    let mut all = BTreeMap::new();
    while let Some(statuses) = running.join_next().await {
        for (status, times) in statuses.context("a client failed")?? {
            *all.entry(status).or_default() += times;
        }
    }
    Ok(LoadResult {
        took: begun.elapsed(),
        statuses: all,
    })
}

struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    /// Sends one request and reads the response; returns the status.
    async fn post(&mut self, path: &str, body: &str) -> Result<u16> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the server closed the connection");
            }
            if let Some((status, length)) = head(&self.buffer)? {
                while self.buffer.len() < length {
                    if self.stream.read_buf(&mut self.buffer).await? == 0 {
                        bail!("the server closed the connection during its response");
                    }
                }
                return Ok(status);
            }
        }
    }
}

/// Status and total length of the response, once its head is complete.
fn head(bytes: &[u8]) -> Result<Option<(u16, usize)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&bytes[..end])?;
    let status = head
        .split_whitespace()
        .nth(1)
        .and_then(|status| status.parse().ok())
        .context("the answer has a status")?;
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())
        .context("the answer says how long it is")?;
    Ok(Some((status, end + 4 + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_head_and_its_length_are_there() -> Result<()> {
        assert_eq!(head(b"HTTP/1.1 202 Accepted\r\ncontent-le")?, None);
        let whole = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(head(whole)?, Some((202, whole.len())));
        assert!(head(b"HTTP/1.1 202 Accepted\r\n\r\n").is_err());
        Ok(())
    }
}
