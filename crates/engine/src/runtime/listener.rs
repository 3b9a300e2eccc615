//! Listens for hints; a lost one costs a poll interval, no more.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio_util::sync::CancellationToken;

use super::flow::Flow;
use crate::lease::WorkTable;
use crate::wake::CHANNEL;

const RETRY: Duration = Duration::from_secs(1);

/// Turns hints for this table into looks at it, until told to stop. Behind a pooler that can't listen, polling is all.
pub(super) async fn listen(
    side: PgPool,
    table: &'static WorkTable,
    flow: Arc<Flow>,
    stop: CancellationToken,
) {
    let listening = async {
        loop {
            if let Err(error) = follow(&side, table, &flow).await {
                tracing::debug!(%error, table = table.name, "not listening for hints; polling goes on");
            }
            tokio::time::sleep(RETRY).await;
        }
    };
    stop.run_until_cancelled(listening).await;
}

async fn follow(side: &PgPool, table: &'static WorkTable, flow: &Flow) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(side).await?;
    listener.listen(CHANNEL).await?;
    // Whatever was announced before we listened, or while the connection was gone, must be looked for.
    flow.hint.notify_one();
    loop {
        match listener.try_recv().await? {
            Some(hint) if hint.payload() != table.name => {}
            Some(_) | None => flow.hint.notify_one(),
        }
    }
}
