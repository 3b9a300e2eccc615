//! Payments over every transport while the processes of both sides and the broker are killed.
//!
//! Clients repeat requests, messages arrive twice under the same and under other ids, and reconciliations run during
//! traffic. Over a broker the wallet has its own database. `POSTRIDER_STORM=10000` makes it longer.

pub mod books;
mod cluster;

use std::time::Duration;

use postrider_testkit::servers::Kind;
use postrider_testkit::within;
use tokio_util::sync::CancellationToken;

use cluster::Cluster;

const PAYMENTS: usize = 300;

/// Long enough for ten thousand payments on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(900);

fn count() -> usize {
    std::env::var("POSTRIDER_STORM").map_or(PAYMENTS, |n| n.parse().unwrap())
}

macro_rules! over {
    ($module:ident, $kind:expr) => {
        mod $module {
            use postrider_testkit::servers::Kind;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn assured_every_payment_ends_despite_kills_and_duplicates() {
                let kind: Option<Kind> = $kind;
                super::assured(kind).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn chance_pending_payments_report_the_true_reason_and_reconciliation_is_final() {
                let kind: Option<Kind> = $kind;
                super::chance(kind).await;
            }
        }
    };
}

over!(postgres, None);
over!(kafka, Some(Kind::Kafka));
over!(rabbitmq, Some(Kind::Rabbitmq));
over!(nats, Some(Kind::Nats));

async fn assured(kind: Option<Kind>) {
    let Some(cluster) = Cluster::build(kind, "assured").await else {
        return;
    };
    cluster.storm().await;
    within(TIMEOUT, "every payment has ended", async || {
        let pending = cluster.pending().await.len();
        tokio::time::sleep(Duration::from_millis(200)).await;
        if pending == 0 { Ok(()) } else { Err(pending) }
    })
    .await;
    cluster.repeat_all().await;
    cluster.audit().await;
}

async fn chance(kind: Option<Kind>) {
    let Some(cluster) = Cluster::build(kind, "chance").await else {
        return;
    };
    let ended = CancellationToken::new();
    let reconciling = async {
        // Twice at once, during traffic.
        while !ended.is_cancelled() {
            tokio::join!(cluster.reconcile(), cluster.reconcile());
            ended
                .run_until_cancelled(tokio::time::sleep(Duration::from_secs(2)))
                .await;
        }
    };
    tokio::join!(
        async {
            cluster.storm().await;
            ended.cancel();
        },
        reconciling
    );
    within(
        TIMEOUT,
        "every message was handled or failed permanently",
        async || {
            let left = cluster.unhandled().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            if left == 0 { Ok(()) } else { Err(left) }
        },
    )
    .await;
    within(TIMEOUT, "nothing is in progress any more", async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.check_reasons().await
    })
    .await;
    within(TIMEOUT, "reconciliation settles the rest", async || {
        tokio::join!(cluster.reconcile(), cluster.reconcile());
        match cluster.pending().await.len() {
            0 => Ok(()),
            n => Err(n),
        }
    })
    .await;
    cluster.audit().await;
    cluster.late_messages_change_nothing().await;
    cluster.repeat_all().await;
    cluster.audit().await;
}
