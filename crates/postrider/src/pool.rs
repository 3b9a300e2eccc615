//! Connections that are tested when there is reason to, and that keep what was prepared on them.
//!
//! By itself sqlx asks the server before each use of a connection whether it is still there: a round trip more for every
//! statement. A connection that somebody used just now is there, or breaks under its next user as it would have anyway.

use std::time::Duration;

use sqlx::{
    Connection, PgConnection, Row,
    postgres::{PgConnectOptions, PgPoolOptions},
};

/// What was used within this time is not asked about.
const TRUSTED: Duration = Duration::from_secs(1);

/// The options to make a pool with; the rest of them is sqlx's.
#[must_use]
pub fn options() -> PgPoolOptions {
    PgPoolOptions::new()
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move { Ok(meta.idle_for < TRUSTED || connection.ping().await.is_ok()) })
        })
}

/// Two statements of one shape, so that one can be mistaken for the other.
const STATEMENTS: [(&str, &str); 2] = [
    ("one", "select 'one' where $1"),
    ("other", "select 'other' where $1"),
];

/// In this order a pooler that takes its sessions in turn gives some to both connections.
const TURNS: [usize; 4] = [0, 1, 1, 0];

const ROUNDS: usize = 3;

/// A statement of this name exists already, or does not exist, or has other parameters.
const MIXED_UP: [&str; 3] = ["42P05", "26000", "08P01"];

/// Does each connection keep its prepared statements to itself?
///
/// Behind a pooler that hands sessions on after each transaction and knows nothing of prepared statements, a connection that
/// runs its own statement may run another connection's in its place. Nothing can be promised there.
pub async fn keeps_statements_apart(options: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let mut connections = [
        PgConnection::connect_with(options).await?,
        PgConnection::connect_with(options).await?,
    ];
    let mut apart = true;
    for turn in TURNS.into_iter().cycle().take(ROUNDS * TURNS.len()) {
        let (own, statement) = STATEMENTS[turn];
        apart = said(own, statement, &mut connections[turn]).await?;
        if !apart {
            break;
        }
    }
    for connection in connections {
        // The server ends what we do not.
        let _ = connection.close().await;
    }
    Ok(apart)
}

async fn said(
    own: &str,
    statement: &'static str,
    connection: &mut PgConnection,
) -> Result<bool, sqlx::Error> {
    let answer: Result<String, sqlx::Error> = sqlx::query_scalar(statement)
        .bind(true)
        .fetch_one(connection)
        .await;
    match answer {
        Ok(word) => Ok(word == own),
        Err(sqlx::Error::Database(error)) => match error.code() {
            Some(code) if MIXED_UP.contains(&&*code) => Ok(false),
            _ => Err(sqlx::Error::Database(error)),
        },
        // An answer of another shape: somebody else's statement.
        Err(
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::RowNotFound,
        ) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Is there a pooler in transaction mode between us and the server? Two connections that are opened then may find themselves
/// in one session of the server, or one of them in two. Asked by the simple protocol, which every pooler understands.
///
/// With many sessions such a pooler may by chance give each connection its own; then it goes unnoticed.
pub async fn shares_sessions(options: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let mut one = PgConnection::connect_with(options).await?;
    let mut other = PgConnection::connect_with(options).await?;
    let mut shared = false;
    for _ in 0..ROUNDS {
        let before = session(&mut one).await?;
        sqlx::raw_sql("begin read only").execute(&mut other).await?;
        let theirs = session(&mut other).await?;
        // Were there one session for both, asking now would wait for the other's transaction.
        let after = if theirs == before {
            theirs
        } else {
            session(&mut one).await?
        };
        sqlx::raw_sql("rollback").execute(&mut other).await?;
        if theirs == before || after != before {
            shared = true;
            break;
        }
    }
    one.close().await?;
    other.close().await?;
    Ok(shared)
}

async fn session(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    let row = sqlx::raw_sql("select pg_backend_pid()")
        .fetch_one(connection)
        .await?;
    row.try_get(0)
}
