//! Every crash point of a payment, by kill -9 and by a stall past the lease: the payment ends, is deducted at most
//! once, and both sides agree on it.
//!
//! The tests of the payments crate cover errors and panics; these use whole processes. One is killed and
//! restarted, or another one works while it stalls.

use std::process::Command;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use postrider_testkit::servers::{Kind, Server};
use postrider_testkit::{TestDb, crash, within};
use serde_json::{Value, json};
use sqlx::PgPool;
use uuid::Uuid;

use crate::payments_storm::books;
use crate::program::{Serving, postrider};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Cases that run concurrently; each mostly waits.
const CONCURRENT_CASES: usize = 5;

/// The crash points of the consumer loop that the wallet runs in.
const BATCH_COMMIT: &str = "subscriber.before_batch_commit";
const BATCH_ACK: &str = "subscriber.before_batch_ack";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Kill,
    Stall,
}

/// One failure at one point.
#[derive(Debug, Clone)]
struct Case {
    point: String,
    way: Way,
    mode: &'static str,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_or_stall_at_any_crash_point_a_payment_ends_once_and_both_sides_agree() {
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    // Those that wait longest come first.
    let mut points = crash::declared_in(format!("{crates}/transports/src"));
    points.extend(crash::declared_in(format!(
        "{crates}/services/payments/src"
    )));
    points.extend([BATCH_COMMIT.to_owned(), BATCH_ACK.to_owned()]);
    assert!(points.len() >= 11, "{points:?}");
    let cases = points.iter().flat_map(|point| {
        modes(point).iter().flat_map(|mode| {
            [Way::Stall, Way::Kill].map(|way| Case {
                point: point.clone(),
                way,
                mode,
            })
        })
    });
    stream::iter(cases.collect::<Vec<_>>())
        .for_each_concurrent(CONCURRENT_CASES, walk)
        .await;
}

/// The delivery modes that reach the point.
fn modes(point: &str) -> &'static [&'static str] {
    match point {
        BATCH_ACK | "wallet.before_commit" => &["chance", "assured"],
        _ if point.starts_with("notify.") || point.starts_with("intake.") => &["assured"],
        _ => &["chance"],
    }
}

impl Case {
    fn is_of(&self, part: &str) -> bool {
        self.point.starts_with(part)
    }

    /// The crash plan for the program. A stall is longer than the lease at that point: the broker's is 10 s.
    fn plan(&self) -> String {
        let what = match self.way {
            Way::Kill => "kill",
            Way::Stall if self.is_of("intake.") => "stall:12s",
            Way::Stall => "stall:3s",
        };
        format!("{}={what}", self.point)
    }

    /// Why the payment needs a reconciliation, if it does: a kill lost the only callback of the mode `chance`, or
    /// a reconciliation that failed half-way wrote the wallet's tombstone.
    fn stuck(&self) -> Option<&'static str> {
        let untold = [BATCH_ACK, "wallet.before_callback"].contains(&&*self.point);
        match self.way {
            _ if self.is_of("reconcile.") => Some("IN_FLIGHT"),
            Way::Kill if untold && self.mode == "chance" => Some("CALLBACK_FAILED"),
            Way::Kill | Way::Stall => None,
        }
    }
}

/// The processes and databases of one case.
struct Fixture {
    db: TestDb,
    /// The wallet's own database, where acknowledging is a separate step.
    wallet: Option<TestDb>,
    broker: Option<Server>,
    mode: &'static str,
}

impl Fixture {
    /// None: the broker is not installed.
    async fn of(case: &Case) -> Option<Self> {
        let apart = case.is_of(BATCH_ACK) || (case.is_of("wallet.") && case.mode == "assured");
        let wallet = match apart {
            true => Some(TestDb::new().await),
            false => None,
        };
        let broker = match case.is_of("intake.") {
            true => Some(Kind::Nats.dedicated().await?),
            false => None,
        };
        Some(Self {
            db: TestDb::new().await,
            wallet,
            broker,
            mode: case.mode,
        })
    }

    fn wallet(&self) -> PgPool {
        self.wallet.as_ref().unwrap_or(&self.db).pool()
    }

    fn serve(&self, roles: &str) -> Command {
        let mut command = postrider(&["serve", "--listen", "127.0.0.1:0", "--roles", roles]);
        command.args(["--database-url", &self.db.url()]);
        let mut own = vec![
            format!("payments.delivery={}", self.mode),
            "payments.lease.seconds=1".to_owned(),
            "payments.callback.timeout=1".to_owned(),
            "payments.reconcile.after=0".to_owned(),
            "database.pool_size=8".to_owned(),
            "database.worker_connections=8".to_owned(),
            "payments.wallet.pool_size=4".to_owned(),
        ];
        if let Some(wallet) = &self.wallet {
            own.push(format!("payments.wallet.database_url={}", wallet.url()));
        }
        if let Some(broker) = &self.broker {
            own.push("transport.kind=nats".to_owned());
            own.push(format!("transport.url={}", broker.url()));
        }
        for setting in &own {
            command.args(["--set", setting]);
        }
        command
    }
}

const ALL: &str = "api,publisher,worker,scheduler";

async fn walk(case: Case) {
    let Some(fixture) = Fixture::of(&case).await else {
        return;
    };
    // Leave work for the reconciliation.
    let roles = if case.is_of("reconcile.") { "api" } else { ALL };
    let mut command = fixture.serve(roles);
    command.env(crash::VARIABLE, case.plan());
    let mut armed = Serving::start(&command).await;
    let account = json!({ "account_id": "acc-1", "currency": "USD", "balance": "100" });
    let opened = armed.post("/wallet/accounts").json(&account).send().await;
    assert_eq!(opened.unwrap().status(), 201, "{case:?}");
    let uuid = Uuid::now_v7();
    let payment = json!({ "uuid": uuid, "account_id": "acc-1", "amount": "30", "currency": "USD" });
    let post = armed.post("/payments").json(&payment).send();
    let reconcile = armed.post("/payments/reconcile").send();
    let (posted, reconciles) = (tokio::spawn(post), case.is_of("reconcile."));
    let asking = tokio::spawn(async move {
        // Either may be cut short, or take as long as the stall.
        let _ = posted.await;
        if reconciles {
            let _ = reconcile.await;
        }
    });
    armed.wait_for_crash_point(&case.point).await;
    let stalled = match case.way {
        Way::Stall => Some(armed),
        Way::Kill => {
            armed.dies().await;
            None
        }
    };
    let serving = Serving::start(&fixture.serve(ALL)).await;
    let repeated = serving.post("/payments").json(&payment).send().await;
    assert!(repeated.unwrap().status().is_success(), "{case:?}");
    let view = ends(&case, &serving, uuid).await;
    asking.await.unwrap();
    if let Some(stalled) = stalled {
        // It goes on with what it held, and only then it ends.
        assert!(stalled.terminate().await.success(), "{case:?}");
    }
    nothing_is_left(&case, &fixture).await;
    check(&case, &fixture, &view).await;
}

/// Waits until the payment ends, reconciling it if it is stuck for the expected reason.
async fn ends(case: &Case, serving: &Serving, uuid: Uuid) -> Value {
    let path = format!("/payments/{uuid}");
    within(TIMEOUT, &format!("{case:?}: it has ended"), async || {
        let view = serving.json(&path).await;
        if view["status"] != "PENDING" {
            return Ok(view);
        }
        if view["reason"].as_str() == case.stuck() {
            let report = serving.post("/payments/reconcile").send().await.unwrap();
            assert!(report.status().is_success(), "{case:?}");
        }
        Err(view)
    })
    .await
}

/// Waits until nothing is left in the transport; it changes nothing any more.
async fn nothing_is_left(case: &Case, fixture: &Fixture) {
    let what = format!("{case:?}: every message was handled and every callback sent");
    let (pool, wallet) = (fixture.db.pool(), fixture.wallet());
    within(TIMEOUT, &what, async || {
        let messages = "select (select count(*) from payments.outbox where status <> 'PUBLISHED')
             + (select count(*) from postrider.delivery where finished_at is null)";
        let owed = "select count(*) from wallet.outbox";
        match (number(&pool, messages).await, number(&wallet, owed).await) {
            (0, 0) => Ok(()),
            left => Err(left),
        }
    })
    .await;
}

async fn check(case: &Case, fixture: &Fixture, view: &Value) {
    let (pool, wallet) = (fixture.db.pool(), fixture.wallet());
    let (status, balance) = match case.is_of("reconcile.") {
        true => ("FAILED", "100.00"),
        false => ("SUCCEED", "70.00"),
    };
    assert_eq!(view["status"], status, "{case:?}: {view}");
    let (outcome, settled_by): (String, String) =
        sqlx::query_as("select status, settled_by from payments.request")
            .fetch_one(&pool)
            .await
            .unwrap();
    let by = case.stuck().map_or("callback", |_| "reconcile");
    assert_eq!((&*outcome, &*settled_by), (status, by), "{case:?}");
    let left: String = sqlx::query_scalar("select round(balance, 2)::text from wallet.account")
        .fetch_one(&wallet)
        .await
        .unwrap();
    assert_eq!(left, balance, "{case:?}");
    books::agree(&pool, &wallet).await;
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}
