//! A minimal pooler in transaction mode: many clients share one server session, which changes hands between transactions.

use std::sync::Arc;

use postrider::outbox::OUTBOX;
use postrider_inspect::doctor::{Doctor, Severity::*};
use postrider_testkit::TestDb;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Mutex;

use super::{healthy_database, limits, problems};

#[tokio::test]
async fn a_pooler_that_mixes_up_statements_is_reported_and_stops_no_check() {
    let db = healthy_database().await;
    let options = start(&db).await;
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect_lazy_with(options);
    let report = Doctor::new([&OUTBOX]).limits(limits()).examine(&pool).await;
    let pooler = report.findings.iter().find(|f| f.check == "server/pooler");
    assert_eq!(pooler.unwrap().severity, Critical, "{pooler:?}");
    let others = problems(&report, Info);
    assert!(others.is_empty(), "{others:#?}");
}

#[tokio::test]
async fn no_pooler_is_reported_without_one() {
    let db = healthy_database().await;
    let report = super::examine(&db, limits()).await;
    let pooler = report.findings.iter().find(|f| f.check == "server/pooler");
    assert_eq!(pooler.unwrap().severity, Ok, "{pooler:?}");
}

async fn start(db: &TestDb) -> PgConnectOptions {
    let options = db.connect_options();
    let socket = options.get_socket().unwrap().join(".s.PGSQL.5432");
    let mut server = UnixStream::connect(socket).await.unwrap();
    let mut startup = 196_608_u32.to_be_bytes().to_vec();
    for word in ["user", options.get_username(), "database", db.name(), ""] {
        startup.extend(word.as_bytes());
        startup.push(0);
    }
    let length = u32::try_from(startup.len() + 4).unwrap();
    server.write_all(&length.to_be_bytes()).await.unwrap();
    server.write_all(&startup).await.unwrap();
    // Every client gets the startup messages of the one server session.
    let (greeting, _) = until_ready(&mut server).await.unwrap();
    let server = Arc::new(Mutex::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Result::Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, Arc::clone(&server), greeting.clone()));
        }
    });
    PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(port)
        .username("anybody")
        .ssl_mode(PgSslMode::Disable)
}

/// Serves one client: acquires the server session per transaction.
async fn serve(
    mut client: TcpStream,
    server: Arc<Mutex<UnixStream>>,
    greeting: Vec<u8>,
) -> Option<()> {
    let length = client.read_u32().await.ok()?;
    let mut startup = vec![0; usize::try_from(length).ok()? - 4];
    client.read_exact(&mut startup).await.ok()?;
    client.write_all(&greeting).await.ok()?;
    loop {
        let mut message = message(&mut client).await?;
        let mut server = server.lock().await;
        loop {
            let kind = message[0];
            if kind == b'X' {
                return Some(());
            }
            server.write_all(&message).await.ok()?;
            if kind == b'Q' || kind == b'S' {
                let (answer, idle) = until_ready(&mut *server).await?;
                client.write_all(&answer).await.ok()?;
                if idle {
                    break;
                }
            }
            message = self::message(&mut client).await?;
        }
    }
}

async fn message(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<Vec<u8>> {
    let kind = stream.read_u8().await.ok()?;
    let length = stream.read_u32().await.ok()?;
    let mut message = vec![kind];
    message.extend(length.to_be_bytes());
    message.resize(usize::try_from(length).ok()? + 1, 0);
    stream.read_exact(&mut message[5..]).await.ok()?;
    Some(message)
}

/// Reads up to "ready for query"; returns whether no transaction is open.
async fn until_ready(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<(Vec<u8>, bool)> {
    let mut all = Vec::new();
    loop {
        let message = message(stream).await?;
        all.extend(&message);
        if message[0] == b'Z' {
            return Some((all, message[5] == b'I'));
        }
    }
}
