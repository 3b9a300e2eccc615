//! One connection: forwards bytes both ways and applies faults.

use std::sync::Mutex;
use std::sync::PoisonError;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::fault::{Faults, Mode};
use super::pgwire::Wire;
use super::{CommitCut, Direction};

/// The connection was broken on purpose.
struct Cut;

/// Forwards bytes both ways until both sides have finished or a fault breaks the connection.
pub(super) async fn run(
    client: (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    server: (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    faults: &Faults,
    wire: Option<Wire>,
) {
    let _open = faults.opened();
    let wire = wire.map(Mutex::new);
    let mut generation = faults.generation();
    let pumps = async {
        tokio::try_join!(
            pump(
                client.0,
                server.1,
                Direction::ToServer,
                faults,
                wire.as_ref()
            ),
            pump(
                server.0,
                client.1,
                Direction::ToClient,
                faults,
                wire.as_ref()
            ),
        )
    };
    let broken = tokio::select! {
        ended = pumps => ended.is_err(),
        _ = generation.changed() => true,
    };
    if broken {
        faults.count_cut();
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    direction: Direction,
    faults: &Faults,
    wire: Option<&Mutex<Wire>>,
) -> Result<(), Cut> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        // A read error ends this direction, like an orderly close.
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            let _ = to.shutdown().await;
            return Ok(());
        }
        let step = plan_chunk(&buffer[..read], direction, faults, wire);
        let sent = send(&mut to, &buffer[..step.pass], faults.mode()).await;
        if step.cut {
            return Err(Cut);
        }
        if sent.is_err() {
            return Ok(());
        }
    }
}

/// How much of a chunk to forward, and whether to break the connection after it.
struct Step {
    pass: usize,
    cut: bool,
}

fn plan_chunk(
    chunk: &[u8],
    direction: Direction,
    faults: &Faults,
    wire: Option<&Mutex<Wire>>,
) -> Step {
    if let Some(wire) = wire {
        let mut wire = wire.lock().unwrap_or_else(PoisonError::into_inner);
        match direction {
            Direction::ToServer => {
                if let Some(start) = wire.commit_in(chunk) {
                    match faults.take_commit() {
                        Some(CommitCut::BeforeServer) => {
                            return Step {
                                pass: start,
                                cut: true,
                            };
                        }

                        Some(CommitCut::BeforeAnswer) => wire.withhold(),
                        None => {}
                    }
                }
            }
            Direction::ToClient => {
                let answered = wire.commit_answered_in(chunk);
                if wire.is_withholding() {
                    return Step {
                        pass: 0,
                        cut: answered,
                    };
                }
            }
        }
    }
    match faults.spend(direction, chunk.len()) {
        Some(pass) => Step { pass, cut: true },
        None => Step {
            pass: chunk.len(),
            cut: false,
        },
    }
}

async fn send(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8], mode: Mode) -> std::io::Result<()> {
    match mode {
        Mode::Pass | Mode::Refuse => to.write_all(bytes).await,
        Mode::BlackHole => Ok(()),
        Mode::Delay(time) => {
            tokio::time::sleep(time).await;
            to.write_all(bytes).await
        }
        Mode::Trickle => {
            for byte in bytes {
                to.write_all(std::slice::from_ref(byte)).await?;
                // Let the other side read it alone.
                tokio::task::yield_now().await;
            }
            Ok(())
        }
    }
}
