//! Detects a pooler in transaction mode between the program and the server.

use super::probe::{CheckError, CheckResult, Issue, Probe};
use postrider::internal::pool::{keeps_statements_apart, shares_sessions};

const MIXES_STATEMENTS: &str = "a pooler in transaction mode between the program and the server mixes up prepared statements: one connection runs another's";

const DROPS_NOTIFICATIONS: &str = "a pooler in transaction mode between the program and the server drops notifications: workers find work only by polling";

const ADVICE: &str = "point database.url at the server itself, or set the pooler's mode to session for this database, or enable prepared statements in the pooler (PgBouncer 1.21 or later, max_prepared_statements above 0)";

pub(super) async fn check(probe: &Probe<'_>) -> CheckResult {
    let deadline = probe.limits.timeout;
    let options = probe.pool.connect_options();
    let found = tokio::time::timeout(deadline, async {
        // Checked first: running the wrong statement is worse than missing notifications.
        if !keeps_statements_apart(&options).await? {
            return Ok(Some(Issue::critical(MIXES_STATEMENTS.to_owned(), ADVICE)));
        }
        let shared = shares_sessions(&options).await?;
        Ok::<_, sqlx::Error>(shared.then(|| Issue::warning(DROPS_NOTIFICATIONS.to_owned(), ADVICE)))
    });
    let found = found.await.map_err(|_| CheckError::Timeout(deadline))??;
    Ok(found.into_iter().collect())
}
