//! Processes with one role each, clients that retry, duplicated messages, and kills.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use postrider::transport::{Message, MessageId, Origin, Published, Transport};
use postrider_payments::requests::TOPIC;
use postrider_testkit::servers::Kind;
use postrider_testkit::{TestDb, within};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::sync::{Semaphore, mpsc};
use uuid::Uuid;

use super::{TIMEOUT, count};
use crate::carrier::Carrier;
use crate::program::{Serving, postrider};

const ACCOUNTS: usize = 50;
const CLIENTS: usize = 16;

/// The roles of the processes; the worker includes the wallet.
const ROLES: [&str; 3] = ["worker,scheduler", "publisher", "api"];

/// Payments whose messages wait in the transport until the payments are declared failed.
const LATE_PAYMENTS: usize = 20;

pub struct Cluster {
    db: TestDb,
    /// The wallet's own database, used with a broker.
    wallet_db: Option<TestDb>,
    pub pool: PgPool,
    pub wallet: PgPool,
    pub carrier: Carrier,
    /// A transport for messages that the test sends itself.
    transport: Arc<dyn Transport>,
    pub mode: &'static str,
    pub http: reqwest::Client,
    /// Base URL of the API, the same after a restart.
    pub base: String,
    processes: Mutex<HashMap<&'static str, Serving>>,
    /// Number of duplicated messages: under the same id, under other ids.
    pub duplicated: [AtomicUsize; 2],
    pub kills: AtomicUsize,
    /// Total number of accepted payments.
    pub accepted: AtomicUsize,
}

impl Cluster {
    /// None: the broker is not installed.
    pub async fn build(kind: Option<Kind>, mode: &'static str) -> Option<Self> {
        let db = TestDb::new().await;
        let carrier = Carrier::new(kind, &db).await?;
        let wallet_db = match kind {
            Some(_) => Some(TestDb::new().await),
            None => None,
        };
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().timeout(Duration::from_secs(30));
        let cluster = Self {
            pool: db.pool(),
            wallet: wallet_db.as_ref().map_or_else(|| db.pool(), TestDb::pool),
            transport: carrier.open(db.pool()),
            db,
            wallet_db,
            carrier,
            mode,
            base: format!("http://{}", free.local_addr().unwrap()),
            http: http.build().unwrap(),
            processes: Mutex::default(),
            duplicated: Default::default(),
            kills: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
        };
        drop(free);
        for role in ROLES {
            cluster.start(role).await;
        }
        for account in 0..ACCOUNTS {
            cluster.open_account(account).await;
        }
        Some(cluster)
    }

    async fn open_account(&self, account: usize) {
        let body = json!({
            "account_id": format!("acc-{account}"), "currency": "USD",
            // Enough for most payments, but not for all.
            "balance": format!("{}", (count() / ACCOUNTS + 1) * 5),
        });
        let open = self
            .http
            .post(format!("{}/wallet/accounts", self.base))
            .json(&body);
        assert_eq!(open.send().await.unwrap().status().as_u16(), 201);
    }

    async fn start(&self, role: &'static str) {
        let listen = match role {
            "api" => self.base.trim_start_matches("http://"),
            _ => "127.0.0.1:0",
        };
        let mut command = postrider(&["serve", "--listen", listen, "--roles", role]);
        command.args(["--database-url", &self.carrier.database_url(&self.db)]);
        let mut own = vec![
            format!("payments.delivery={}", self.mode),
            format!("payments.callback.url={}", self.base),
            "payments.callback.timeout=2".to_owned(),
            "payments.lease.seconds=2".to_owned(),
            "payments.publish.backoff=[0.5]".to_owned(),
            "payments.reconcile.after=5".to_owned(),
            "breaker.open_for=1".to_owned(),
            "database.pool_size=8".to_owned(),
            "payments.wallet.pool_size=6".to_owned(),
        ];
        if let Some(wallet) = &self.wallet_db {
            own.push(format!("payments.wallet.database_url={}", wallet.url()));
        }
        own.extend(self.carrier.settings());
        for setting in &own {
            command.args(["--set", setting]);
        }
        let serving = Serving::start(&command).await;
        self.processes.lock().unwrap().insert(role, serving);
    }

    async fn kill(&self, role: &'static str) {
        let killed = self.processes.lock().unwrap().remove(role).unwrap();
        killed.kill().await;
        self.kills.fetch_add(1, SeqCst);
    }

    /// Clients send each payment twice and retry until it is accepted; meanwhile every process is killed in turn,
    /// each time in the middle of traffic.
    pub async fn storm(&self) {
        let (count, begun) = (count(), Instant::now());
        let rounds = 8 + count / 2000 * 4;
        let share = count / (rounds + 1);
        let allowed = Semaphore::new(0);
        let (sent, mut seen) = mpsc::unbounded_channel();
        let paying = async {
            stream::iter(0..count)
                .for_each_concurrent(CLIENTS, |n| {
                    let (sent, allowed) = (&sent, &allowed);
                    async move {
                        allowed.acquire().await.unwrap().forget();
                        let uuid = Uuid::now_v7();
                        self.pay(uuid, n).await;
                        if n % 3 == 0 {
                            sent.send(uuid).unwrap();
                        }
                        self.accepted.fetch_add(1, SeqCst);
                    }
                })
                .await;
            drop(sent);
        };
        let duplicating = async {
            let mut some = Vec::new();
            while seen.recv_many(&mut some, 50).await > 0 {
                // The broker may be unavailable.
                self.republish(&std::mem::take(&mut some), true).await;
            }
        };
        let killing = async {
            for round in 0..rounds {
                allowed.add_permits(share);
                let enough = round * share + share / 3;
                within(TIMEOUT, "some more are accepted", async || {
                    let accepted = self.accepted.load(SeqCst);
                    if accepted >= enough {
                        Ok(())
                    } else {
                        Err(accepted)
                    }
                })
                .await;
                match round % 4 {
                    1 => {
                        let crash = round % 8 == 1;
                        self.carrier.restart(crash).await;
                        self.kills.fetch_add(1, SeqCst);
                    }
                    other => {
                        let role = [ROLES[0], "", ROLES[1], ROLES[2]][other];
                        self.kill(role).await;
                        self.start(role).await;
                    }
                }
            }
            allowed.add_permits(count);
            println!("{} kills in {:?}", self.kills.load(SeqCst), begun.elapsed());
        };
        // `sent` is dropped when all have paid, which ends the duplication.
        tokio::join!(paying, duplicating, killing);
        println!("storm took {:?}", begun.elapsed());
    }

    async fn pay(&self, uuid: Uuid, n: usize) {
        let amount = format!("{}.25", n % 11 + 1);
        let account = format!("acc-{}", n % ACCOUNTS);
        let body =
            json!({ "uuid": uuid, "account_id": account, "amount": amount, "currency": "USD" });
        for _ in 0..2 {
            self.pay_until_accepted(&body).await;
        }
    }

    async fn pay_until_accepted(&self, body: &Value) {
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

    /// Publishes the messages of these payments again, alternately under their own and under other ids; returns the ids
    /// that the transport confirmed.
    async fn republish(&self, uuids: &[Uuid], own_ids_too: bool) -> Vec<Uuid> {
        let mut connection = self.pool.acquire().await.unwrap();
        let origin = Origin::load(&mut connection, &postrider_payments::OUTBOX)
            .await
            .unwrap();
        let rows: Vec<(i64, String)> =
            sqlx::query_as("select id, payload::text from payments.outbox where uuid = any($1)")
                .bind(uuids)
                .fetch_all(&mut *connection)
                .await
                .unwrap();
        drop(connection);
        let own = |n: usize| own_ids_too && n.is_multiple_of(2);
        let messages: Vec<Message> = rows
            .iter()
            .enumerate()
            .map(|(n, (id, payload))| {
                let id = if own(n) {
                    origin.mint(*id)
                } else {
                    MessageId::new(Uuid::new_v4())
                };
                Message::new(id, TOPIC, payload.as_str())
            })
            .collect();
        let answers = self.transport.publish(&messages).await;
        let mut confirmed = Vec::new();
        for (n, (message, answer)) in messages.iter().zip(answers).enumerate() {
            if answer == Published::Confirmed {
                self.duplicated[usize::from(!own(n))].fetch_add(1, SeqCst);
                confirmed.push(message.id.uuid());
            }
        }
        confirmed
    }

    /// Publishes every message again under another id; it must have no effect.
    pub async fn repeat_all(&self) {
        let uuids: Vec<Uuid> = sqlx::query_scalar("select uuid from payments.request")
            .fetch_all(&self.pool)
            .await
            .unwrap();
        let before = self.balances().await;
        let mut ids = Vec::new();
        for some in uuids.chunks(500) {
            let republish = self.republish(some, false).await;
            assert_eq!(republish.len(), some.len(), "the transport confirms");
            ids.extend(republish);
        }
        self.handled(&ids).await;
        assert_eq!(self.balances().await, before, "nothing is deducted twice");
    }

    /// Waits until the wallet has handled all these messages.
    async fn handled(&self, ids: &[Uuid]) {
        within(TIMEOUT, "the messages were handled", async || {
            let left: i64 = sqlx::query_scalar(
                "select (select count(*) from unnest($1::uuid[]) u(id)
                         where not exists (select from postrider.message m where m.id = u.id))
                      + (select count(*) from postrider.delivery where finished_at is null)",
            )
            .bind(ids)
            .fetch_one(&self.pool)
            .await
            .unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
            if left == 0 { Ok(()) } else { Err(left) }
        })
        .await;
    }

    /// Messages wait in the transport without a wallet; their requests are declared failed; then the
    /// wallet is started again.
    pub async fn late_messages_change_nothing(&self) {
        let before = self.balances().await;
        self.kill(ROLES[0]).await;
        let uuids: Vec<Uuid> = (0..LATE_PAYMENTS).map(|_| Uuid::now_v7()).collect();
        for uuid in &uuids {
            self.pay(*uuid, 0).await;
        }
        self.accepted.fetch_add(LATE_PAYMENTS, SeqCst);
        let of_these = async |sql: &'static str| -> i64 {
            let counted = sqlx::query_scalar(sql).bind(&uuids);
            counted.fetch_one(&self.pool).await.unwrap()
        };
        within(TIMEOUT, "all are published", async || {
            of_these("select count(*) from payments.outbox where uuid = any($1) and status <> 'PUBLISHED'").await == 0
        })
        .await;
        within(TIMEOUT, "all are declared failed", async || {
            self.reconcile().await;
            of_these(
                "select count(*) from payments.request where uuid = any($1) and status <> 'FAILED'",
            )
            .await
                == 0
        })
        .await;
        let origin = {
            let mut connection = self.pool.acquire().await.unwrap();
            Origin::load(&mut connection, &postrider_payments::OUTBOX)
                .await
                .unwrap()
        };
        let numbers: Vec<i64> =
            sqlx::query_scalar("select id from payments.outbox where uuid = any($1)")
                .bind(&uuids)
                .fetch_all(&self.pool)
                .await
                .unwrap();
        let ids: Vec<Uuid> = numbers.into_iter().map(|n| origin.mint(n).uuid()).collect();
        self.start(ROLES[0]).await;
        self.handled(&ids).await;
        assert_eq!(
            self.balances().await,
            before,
            "a late message deducts nothing"
        );
        let failed =
            "select count(*) from payments.request where uuid = any($1) and status = 'FAILED'";
        assert_eq!(
            of_these(failed).await,
            i64::try_from(LATE_PAYMENTS).unwrap()
        );
    }

    pub async fn reconcile(&self) {
        let path = format!("{}/payments/reconcile", self.base);
        // The API may be down.
        let _ = self.http.post(path).send().await;
    }
}
