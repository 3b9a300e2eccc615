//! Pool options that test a connection only when there is reason to, and keep prepared statements.
//!
//! By default, sqlx pings the server before each use of a connection: one more round trip per statement. A connection
//! that was used just now is alive, or breaks under its next user as it would have anyway.

use std::time::Duration;

use sqlx::{
    Connection, PgConnection, Row,
    postgres::{PgConnectOptions, PgPoolOptions},
};

/// A connection used within this time isn't pinged.
const PING_AFTER: Duration = Duration::from_secs(1);

/// Pool options to start from; the rest is sqlx's default.
#[must_use]
pub fn options() -> PgPoolOptions {
    PgPoolOptions::new()
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(
                async move { Ok(meta.idle_for < PING_AFTER || connection.ping().await.is_ok()) },
            )
        })
}

/// Two statements of one shape, so that one can be mistaken for the other.
const STATEMENTS: [(&str, &str); 2] = [
    ("one", "select 'one' where $1"),
    ("other", "select 'other' where $1"),
];

/// In this order, a pooler that hands out sessions in turn gives some to both connections.
const TURNS: [usize; 4] = [0, 1, 1, 0];

const ROUNDS: usize = 3;

/// A prepared statement of this name exists already, doesn't exist, or has other parameters.
const MISMATCH_CODES: [&str; 3] = ["42P05", "26000", "08P01"];

/// Whether each connection keeps its prepared statements to itself.
///
/// Behind a pooler that shares sessions between transactions and doesn't track prepared statements, a connection may
/// run another connection's statement in place of its own. Nothing can be promised there.
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
        // The server ends what we don't.
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
            Some(code) if MISMATCH_CODES.contains(&&*code) => Ok(false),
            _ => Err(sqlx::Error::Database(error)),
        },
        // An answer of another shape: another client's statement.
        Err(
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::RowNotFound,
        ) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a pooler in transaction mode sits between us and the server. Two connections opened then may share one
/// server session, or one of them may use two. Checked with the simple protocol, which every pooler understands.
///
/// With many sessions, such a pooler may by chance give each connection its own and go unnoticed.
pub async fn shares_sessions(options: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let mut one = PgConnection::connect_with(options).await?;
    let mut other = PgConnection::connect_with(options).await?;
    let mut shared = false;
    for _ in 0..ROUNDS {
        let before = session(&mut one).await?;
        sqlx::raw_sql("begin read only").execute(&mut other).await?;
        let theirs = session(&mut other).await?;
        // If both shared one session, the query would wait for the other's transaction.
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
