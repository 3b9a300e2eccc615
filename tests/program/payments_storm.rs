//! Payments over every transport while everything is killed: the processes of both sides, and the broker between them.
//!
//! Clients repeat themselves, messages come twice under the same id and under others, and reconciliations run beside the
//! traffic. Over a broker the wallet has a database of its own. `POSTRIDER_STORM=10000` makes it longer.

pub mod books;
mod town;

use std::time::Duration;

use postrider_testkit::servers::Kind;
use postrider_testkit::within;
use tokio_util::sync::CancellationToken;

use town::Town;

const PAYMENTS: usize = 300;

/// Long enough for a busy machine and for ten thousand payments.
const TIMEOUT: Duration = Duration::from_secs(900);

fn count() -> usize {
    std::env::var("POSTRIDER_STORM").map_or(PAYMENTS, |n| n.parse().unwrap())
}

macro_rules! over {
    ($module:ident, $kind:expr) => {
        mod $module {
            use postrider_testkit::servers::Kind;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn assured_every_payment_ends_whatever_is_killed_or_comes_twice() {
                let kind: Option<Kind> = $kind;
                super::assured(kind).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn chance_what_is_pending_says_truly_why_and_once_reconciled_it_stays_so() {
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
    let Some(town) = Town::build(kind, "assured").await else {
        return;
    };
    town.storm().await;
    within(TIMEOUT, "every payment has ended", async || {
        let pending = town.pending().await.len();
        tokio::time::sleep(Duration::from_millis(200)).await;
        if pending == 0 { Ok(()) } else { Err(pending) }
    })
    .await;
    town.repeat_all().await;
    town.audit().await;
}

async fn chance(kind: Option<Kind>) {
    let Some(town) = Town::build(kind, "chance").await else {
        return;
    };
    let ended = CancellationToken::new();
    let beside = async {
        // Twice at once, and beside the traffic.
        while !ended.is_cancelled() {
            tokio::join!(town.reconcile(), town.reconcile());
            ended
                .run_until_cancelled(tokio::time::sleep(Duration::from_secs(2)))
                .await;
        }
    };
    tokio::join!(
        async {
            town.storm().await;
            ended.cancel();
        },
        beside
    );
    within(
        TIMEOUT,
        "every message was handled or given up",
        async || {
            let left = town.unhandled().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            if left == 0 { Ok(()) } else { Err(left) }
        },
    )
    .await;
    within(TIMEOUT, "nothing is under way any more", async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        town.reasons_are_true().await
    })
    .await;
    within(TIMEOUT, "reconciliation settles the rest", async || {
        tokio::join!(town.reconcile(), town.reconcile());
        match town.pending().await.len() {
            0 => Ok(()),
            n => Err(n),
        }
    })
    .await;
    town.audit().await;
    town.comes_too_late().await;
    town.repeat_all().await;
    town.audit().await;
}
