//! The world outside the database: it does what it is told, also twice, and can be asked what it has done.
//!
//! `ask <key>` is answered with `yes` or `no`, `do <key> <id>` with `done`; one request per line.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// What was done for each key: the ids that came with it, in order.
type OutsideCalls = HashMap<String, Vec<String>>;

/// The other side, listening in the test's process.
#[derive(Debug)]
pub struct Outside {
    pub address: SocketAddr,
    outside_calls: Arc<Mutex<OutsideCalls>>,
    _task: AbortOnDropHandle<()>,
}

impl Outside {
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let outside_calls = Arc::<Mutex<OutsideCalls>>::default();
        let shared = Arc::clone(&outside_calls);
        let task = tokio::spawn(async move {
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&shared)));
                }
            }
        });
        Self {
            address,
            outside_calls,
            _task: AbortOnDropHandle::new(task),
        }
    }

    pub fn outside_calls(&self) -> OutsideCalls {
        self.outside_calls.lock().unwrap().clone()
    }
}

async fn serve(stream: TcpStream, outside_calls: Arc<Mutex<OutsideCalls>>) {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["ask", key] if outside_calls.lock().unwrap().contains_key(key) => "yes\n",
            ["ask", _] => "no\n",
            ["do", key, id] => {
                let mut outside_calls = outside_calls.lock().unwrap();
                outside_calls
                    .entry(key.to_owned())
                    .or_default()
                    .push(id.to_owned());
                "done\n"
            }
            _ => "what?\n",
        };
        if write.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Has it done, unless it was done before.
pub async fn once(address: SocketAddr, key: &str, id: &str) -> io::Result<()> {
    let (read, mut write) = TcpStream::connect(address).await?.into_split();
    let mut lines = BufReader::new(read).lines();
    for request in [format!("ask {key}\n"), format!("do {key} {id}\n")] {
        write.write_all(request.as_bytes()).await?;
        match lines.next_line().await?.as_deref() {
            Some("no") => {}
            Some("yes" | "done") => return Ok(()),
            answer => return Err(io::Error::other(format!("{request:?}: {answer:?}"))),
        }
    }
    Ok(())
}
