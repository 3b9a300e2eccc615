//! Payments from outside: the command line, a wallet with a database of its own, and processes that are killed while
//! clients pay.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use postrider_testkit::{TestDb, within};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::program::{Serving, data_dir, postrider, run_with, stdout};

/// How many payments the crash tests make; `POSTRIDER_TEST_PAYMENTS` makes them longer.
const PAYMENTS: usize = 300;

const ACCOUNTS: usize = 50;

/// How often a process is killed on the way.
const KILLS: usize = 6;

/// Long enough for a busy machine and for ten thousand payments.
const PATIENCE: Duration = Duration::from_secs(600);

fn count() -> usize {
    std::env::var("POSTRIDER_TEST_PAYMENTS").map_or(PAYMENTS, |n| n.parse().unwrap())
}

#[tokio::test]
async fn a_payment_is_made_shown_listed_and_reconciled_from_the_command_line() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &["--set", "payments.reconcile.after=0"]).await;
    let server = serving.base().to_owned();
    let call = async |group: &str, more: &[&str]| {
        let output = run_with(&[&[group, "--server", &server, "--json"], more].concat()).await;
        let answer: Value = serde_json::from_str(&stdout(&output)).unwrap_or_default();
        (output.status.code(), answer)
    };
    let open = ["open", "acc-1", "--currency", "USD", "--balance", "100"];
    assert_eq!(call("wallet", &open).await.0, Some(0));
    let uuid = Uuid::now_v7().to_string();
    let pay = [
        "pay",
        "--account",
        "acc-1",
        "--amount",
        "12.50",
        "--currency",
        "USD",
        "--uuid",
        &uuid,
        "--wait",
    ];
    let (code, paid) = call("payments", &pay).await;
    assert_eq!((code, &paid["status"]), (Some(0), &json!("SUCCEED")));
    assert_eq!(call("payments", &["show", &uuid]).await.1, paid);
    let too_much = [
        "pay",
        "--account",
        "acc-1",
        "--amount",
        "100",
        "--currency",
        "USD",
        "--wait",
    ];
    let (code, refused) = call("payments", &too_much).await;
    assert_eq!(
        (code, &refused["reason"]),
        (Some(1), &json!("INSUFFICIENT_FUNDS"))
    );
    let (_, listed) = call("payments", &["list", "--status", "succeed"]).await;
    assert_eq!(listed["items"], json!([paid]));
    let (_, account) = call("wallet", &["show", "acc-1", "--entries"]).await;
    assert_eq!(account["balance"], "87.50");
    assert_eq!(account["entries"][0]["uuid"], json!(uuid));
    let (code, report) = call("payments", &["reconcile"]).await;
    assert_eq!((code, &report["settled"]), (Some(0), &json!(0)));
    let nobody = Uuid::nil().to_string();
    assert_eq!(call("payments", &["show", &nobody]).await.0, Some(7));
    let doctor = run_with(&[
        "doctor",
        "--json",
        "--data-dir",
        dir.path().to_str().unwrap(),
    ])
    .await;
    let doctor: Value = serde_json::from_str(&stdout(&doctor)).unwrap();
    assert_ne!(doctor["worst"], "critical", "{doctor}");
}

#[tokio::test]
async fn a_wallet_with_its_own_database_is_migrated_used_and_examined() {
    let (db, wallet) = (TestDb::new().await, TestDb::new().await);
    let other = format!("payments.wallet.database_url={}", wallet.url());
    let url = db.url();
    let place = ["--database-url", &url, "--set", &other];
    let assured = ["--set", "payments.delivery=assured"];
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    let serving = Serving::start(&postrider(&[&serve[..], &place, &assured].concat())).await;
    let http = reqwest::Client::new();
    open_accounts(&http, serving.base(), 1).await;
    let body = payment(Uuid::now_v7(), 0, 0);
    let path = format!("{}/payments", serving.base());
    let receipt: Value = http
        .post(path)
        .json(&body)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let uuid = receipt["uuid"].as_str().unwrap().to_owned();
    within(PATIENCE, "it is paid", async || {
        let view = serving.json(&format!("/payments/{uuid}")).await;
        if view["status"] == "SUCCEED" {
            Ok(())
        } else {
            Err(view)
        }
    })
    .await;
    let here = number(&db.pool(), "select count(*) from wallet.inbox").await;
    let there = number(&wallet.pool(), "select count(*) from wallet.inbox").await;
    assert_eq!((here, there), (0, 1));
    assert!(serving.terminate().await.success());
    let doctor = run_with(&[&["doctor", "--json"], &place[..]].concat()).await;
    let doctor: Value = serde_json::from_str(&stdout(&doctor)).unwrap();
    let looks = doctor["findings"].as_array().unwrap();
    let agrees = looks
        .iter()
        .filter(|f| f["check"].as_str().unwrap().contains("balance-agrees"));
    assert_eq!(agrees.count(), 2, "both databases are examined");
    // The test server trades safety for speed, which the doctor notices.
    let ill = |f: &&Value| f["severity"] == "critical" && f["check"] != "server/settings";
    assert_eq!(looks.iter().filter(ill).count(), 0, "{doctor}");
}

/// What carries the messages, as settings.
struct Carrier {
    settings: Vec<String>,
}

impl Carrier {
    fn postgres() -> Self {
        Self {
            settings: Vec::new(),
        }
    }
}

#[tokio::test]
async fn assured_over_postgres_every_payment_ends_whatever_process_is_killed() {
    assured(Carrier::postgres()).await;
}

#[tokio::test]
async fn chance_over_postgres_what_is_pending_says_truly_why_and_is_reconciled() {
    chance(Carrier::postgres()).await;
}

async fn assured(carrier: Carrier) {
    let town = Town::build(carrier, "assured").await;
    town.storm().await;
    within(PATIENCE, "every payment has ended", async || {
        match town.pending().await.len() {
            0 => Ok(()),
            n => Err(n),
        }
    })
    .await;
    town.audit().await;
}

async fn chance(carrier: Carrier) {
    let town = Town::build(carrier, "chance").await;
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
    // At least once: whatever was published is handled, by whatever transport.
    let unsettled =
        "select count(*) from payments.outbox o where finished_at is null or o.status = 'PUBLISHED'
        and not exists (select from wallet.inbox i where i.uuid = o.uuid)
        and not exists (select from wallet.failure f where f.uuid = o.uuid)";
    within(
        PATIENCE,
        "every message was handled or given up",
        async || match number(&town.pool, unsettled).await {
            0 => Ok(()),
            n => Err(n),
        },
    )
    .await;
    within(PATIENCE, "nothing is under way any more", async || {
        town.reasons_are_true().await
    })
    .await;
    within(PATIENCE, "reconciliation settles the rest", async || {
        tokio::join!(town.reconcile(), town.reconcile());
        match town.pending().await.len() {
            0 => Ok(()),
            n => Err(n),
        }
    })
    .await;
    town.audit().await;
}

/// Processes with one role each on one database, and clients.
struct Town {
    db: TestDb,
    pool: PgPool,
    carrier: Carrier,
    mode: &'static str,
    http: reqwest::Client,
    /// Where the API is, now and after it was killed.
    base: String,
    processes: Mutex<HashMap<&'static str, Serving>>,
}

const PARTS: [&str; 3] = ["worker,scheduler", "publisher", "api"];

impl Town {
    async fn build(carrier: Carrier, mode: &'static str) -> Self {
        let db = TestDb::new().await;
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let town = Self {
            pool: db.pool(),
            db,
            carrier,
            mode,
            base: format!("http://{}", free.local_addr().unwrap()),
            http: {
                let _ = rustls::crypto::ring::default_provider().install_default();
                reqwest::Client::builder()
                    .timeout(Duration::from_secs(30))
                    .build()
                    .unwrap()
            },
            processes: Mutex::default(),
        };
        drop(free);
        for part in PARTS {
            town.start(part).await;
        }
        open_accounts(&town.http, &town.base, ACCOUNTS).await;
        town
    }

    async fn start(&self, part: &'static str) {
        let listen = match part {
            "api" => self.base.trim_start_matches("http://"),
            _ => "127.0.0.1:0",
        };
        let mut command = postrider(&["serve", "--listen", listen, "--roles", part]);
        command.args(["--database-url", &self.db.url()]);
        let own = [
            format!("payments.delivery={}", self.mode),
            format!("payments.callback.url={}", self.base),
            "payments.callback.timeout=2".to_owned(),
            "payments.lease.seconds=2".to_owned(),
            "payments.publish.backoff=[0.5]".to_owned(),
            "payments.reconcile.after=4".to_owned(),
            "database.pool_size=8".to_owned(),
            "payments.wallet.pool_size=6".to_owned(),
        ];
        for setting in own.iter().chain(&self.carrier.settings) {
            command.args(["--set", setting]);
        }
        let serving = Serving::start(&command).await;
        self.processes.lock().unwrap().insert(part, serving);
    }

    /// Clients pay, twice each, and repeat until they are answered; meanwhile every part is killed in turn.
    async fn storm(&self) {
        let count = count();
        let accepted = Arc::new(Mutex::new(0));
        let paying = stream::iter(0..count).for_each_concurrent(16, |n| {
            let accepted = Arc::clone(&accepted);
            async move {
                let body = payment(Uuid::now_v7(), n % ACCOUNTS, n);
                for _ in 0..2 {
                    self.insist(&body).await;
                }
                *accepted.lock().unwrap() += 1;
            }
        });
        let killing = async {
            for kill in 0..KILLS {
                let enough = count * (kill + 1) / (KILLS + 1);
                within(PATIENCE, "some more are accepted", async || {
                    let accepted = *accepted.lock().unwrap();
                    if accepted >= enough {
                        Ok(())
                    } else {
                        Err(accepted)
                    }
                })
                .await;
                let part = PARTS[kill % PARTS.len()];
                let killed = self.processes.lock().unwrap().remove(part).unwrap();
                killed.kill().await;
                self.start(part).await;
            }
        };
        tokio::join!(paying, killing);
    }

    async fn insist(&self, body: &Value) {
        loop {
            let post = self
                .http
                .post(format!("{}/payments", self.base))
                .json(body)
                .send()
                .await;
            match post.map(|answer| answer.status().as_u16()) {
                Ok(200 | 202) => return,
                Ok(status) => assert!(status >= 500, "{body} was answered with {status}"),
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn reconcile(&self) {
        let path = format!("{}/payments/reconcile", self.base);
        // The API may be dead just now.
        let _ = self.http.post(path).send().await;
    }

    async fn pending(&self) -> Vec<Uuid> {
        sqlx::query_scalar("select uuid from payments.request where status = 'PENDING'")
            .fetch_all(&self.pool)
            .await
            .unwrap()
    }

    /// Every pending payment has a reason, and the tables say the same.
    async fn reasons_are_true(&self) -> Result<(), Value> {
        for uuid in self.pending().await {
            let path = format!("{}/payments/{uuid}", self.base);
            let view: Value = self
                .http
                .get(path)
                .send()
                .await
                .unwrap()
                .json()
                .await
                .unwrap();
            let facts: (bool, bool, bool) = sqlx::query_as(
                "select exists (select from payments.outbox where uuid = $1 and status = 'EXHAUSTED'),
                        exists (select from wallet.failure where uuid = $1),
                        exists (select from wallet.inbox where uuid = $1 and status <> 'TOMBSTONE')",
            )
            .bind(uuid)
            .fetch_one(&self.pool)
            .await
            .unwrap();
            let (exhausted, given_up, handled) = facts;
            match view["reason"].as_str() {
                Some("OUTBOX_EXHAUSTED") => assert!(exhausted && !handled && !given_up, "{view}"),
                Some("LISTENER_FAILED") => assert!(given_up && !handled, "{view}"),
                Some("CALLBACK_FAILED") => assert!(handled, "{view}"),
                // A call back that may still be under way; it has a second more.
                Some("IN_FLIGHT") => return Err(view),
                _ => assert_ne!(view["status"], "PENDING", "{view}"),
            }
        }
        Ok(())
    }

    async fn audit(&self) {
        let all = i64::try_from(count()).unwrap();
        assert_eq!(
            number(&self.pool, "select count(*) from payments.request").await,
            all
        );
        for (sql, what) in [
            (
                "select count(*) from wallet.account where balance < 0",
                "no account is below zero",
            ),
            (
                "select count(*) from wallet.account a where balance <>
                 (select sum(amount) from wallet.entry e where e.account_id = a.account_id)",
                "balances agree with the books",
            ),
            (
                "select count(*) from (select uuid from wallet.entry group by uuid having sum(amount) <> 0) x",
                "entries sum to zero",
            ),
            (
                "select count(*) from (select uuid from wallet.entry where kind = 'payment'
                 group by uuid having count(*) <> 2) x",
                "no uuid is deducted twice",
            ),
            (
                "select count(*) from payments.request r where (r.status = 'SUCCEED') <>
                 exists (select from wallet.entry e where e.uuid = r.uuid)",
                "what is told agrees with the books",
            ),
        ] {
            assert_eq!(number(&self.pool, sql).await, 0, "{what}");
        }
        let ended: Vec<(String, Option<String>, Option<String>, i64)> = sqlx::query_as(
            "select status, reason, settled_by, count(*) from payments.request group by 1, 2, 3 order by 4 desc",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap();
        println!("{} payments in the mode {}: {ended:?}", count(), self.mode);
    }
}

async fn open_accounts(http: &reqwest::Client, base: &str, accounts: usize) {
    for account in 0..accounts {
        let body = json!({
            "account_id": format!("acc-{account}"), "currency": "USD",
            // Enough for most of what is asked of it, not for all.
            "balance": format!("{}", (count() / ACCOUNTS + 1) * 5),
        });
        let open = http
            .post(format!("{base}/wallet/accounts"))
            .json(&body)
            .send()
            .await
            .unwrap();
        assert_eq!(open.status().as_u16(), 201);
    }
}

fn payment(uuid: Uuid, account: usize, n: usize) -> Value {
    let amount = format!("{}.25", n % 11 + 1);
    json!({ "uuid": uuid, "account_id": format!("acc-{account}"), "amount": amount, "currency": "USD" })
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}
