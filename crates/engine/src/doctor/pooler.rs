//! Is there a pooler in transaction mode between us and the server?
//!
//! Two connections are opened; behind such a pooler they may find themselves in one server session, or one of them in
//! two. Whether it keeps prepared statements apart is asked first, with some; all else by the simple protocol, which every
//! pooler understands.

use sqlx::{Connection, PgConnection, Row, postgres::PgConnectOptions};

use super::exam::{Answer, Complaint, Exam, Unanswered};
use crate::pool::keeps_statements_apart;

const MIXES: &str = "a pooler in transaction mode stands between the program and the server and mixes up prepared statements: one connection runs another's";

const DEAF: &str = "a pooler in transaction mode stands between the program and the server: notifications do not get through, so that work is found by polling alone";

const ADVICE: &str = "point database.url at the server itself, or set the pooler's mode to session for this database, or let the pooler know prepared statements (PgBouncer 1.21 or later, max_prepared_statements above 0)";

/// A pooler with many sessions may by chance give each connection its own.
const ROUNDS: u32 = 3;

pub(super) async fn look(exam: &Exam<'_>) -> Answer {
    let longest = exam.limits.patience;
    let options = exam.pool.connect_options();
    let found = tokio::time::timeout(longest, async {
        // A statement that is mistaken for another does the wrong thing: worse than no notifications.
        if !keeps_statements_apart(&options).await? {
            return Ok(Some(Complaint::critical(MIXES.to_owned(), ADVICE)));
        }
        let shared = shares_sessions(&options).await?;
        Ok::<_, sqlx::Error>(shared.then(|| Complaint::warning(DEAF.to_owned(), ADVICE)))
    });
    let found = found.await.map_err(|_| Unanswered::TooLong(longest))??;
    Ok(found.into_iter().collect())
}

async fn shares_sessions(options: &PgConnectOptions) -> Result<bool, sqlx::Error> {
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
