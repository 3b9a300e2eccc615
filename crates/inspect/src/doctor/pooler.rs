//! Is there a pooler in transaction mode between us and the server?
//!
//! Whether it keeps prepared statements apart is asked first.

use super::exam::{Answer, Complaint, Exam, Unanswered};
use postrider::internal::pool::{keeps_statements_apart, shares_sessions};

const MIXES: &str = "a pooler in transaction mode stands between the program and the server and mixes up prepared statements: one connection runs another's";

const DEAF: &str = "a pooler in transaction mode stands between the program and the server: notifications do not get through, so that work is found by polling alone";

const ADVICE: &str = "point database.url at the server itself, or set the pooler's mode to session for this database, or let the pooler know prepared statements (PgBouncer 1.21 or later, max_prepared_statements above 0)";

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
