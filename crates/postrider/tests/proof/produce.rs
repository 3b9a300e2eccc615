//! Producers: they ask for work in every way there is, and write down what they were told.

use std::sync::Arc;
use std::time::Duration;

use postrider::digest::Digest;
use postrider::ledger::{Acceptance, Key, Ledger};
use postrider::outbox::{Enqueuer, EnqueuerOptions, Message, enqueue};
use postrider::{Error, Result};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::dice::Dice;
use crate::journal::{Pen, Told};
use crate::messages::MESSAGE;
use crate::work::{EFFECT, INBOX, LEDGER, MOST_ATTEMPTS, PLAIN, PUBLISH, Task};

const BUSINESS: &str = "insert into proof.business (key, item) values ($1, $2)";
const BY_SQL: &str = "select id from postrider.enqueue($1, $2::text::jsonb, dedupe_key => $3)";
const BACKLOG: &str = "
    select count(*) from (select from postrider.outbox where finished_at is null limit 1000) unfinished";

/// Producers pause while more items than this wait, so that faults hit work in progress.
const ENOUGH: i64 = 200;

/// How a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// In a transaction of the caller's, with a row of its business.
    Transaction,
    /// The same, rolled back at the end.
    RolledBack,
    /// The same, with the request taken into the ledger.
    Ledger,
    /// By the grouped enqueuer.
    Grouped,
    /// By the SQL function, as another language would.
    Sql,
}

/// What to ask for.
#[derive(Debug, Clone)]
pub struct Wish {
    pub way: Way,
    pub topic: &'static str,
    pub fails: i32,
    pub millis: u64,
    pub lane: Option<String>,
}

impl Wish {
    pub fn new(way: Way, topic: &'static str) -> Self {
        Self {
            way,
            topic,
            fails: 0,
            millis: 0,
            lane: None,
        }
    }

    pub fn fails(mut self, fails: i32) -> Self {
        self.fails = fails;
        self
    }

    pub fn takes(mut self, time: Duration) -> Self {
        self.millis = u64::try_from(time.as_millis()).unwrap();
        self
    }

    pub fn lane(mut self, lane: impl Into<String>) -> Self {
        self.lane = Some(lane.into());
        self
    }
}

/// One producer.
pub struct Producer {
    pool: PgPool,
    enqueuer: Arc<Enqueuer>,
    name: String,
    dice: Dice,
    pen: Pen,
    calls: usize,
}

impl Producer {
    pub fn new(pool: PgPool, name: impl Into<String>, dice: Dice, pen: Pen) -> Self {
        Self {
            enqueuer: start_enqueuer(&pool),
            pool,
            name: name.into(),
            dice,
            pen,
            calls: 0,
        }
    }

    /// Makes one call after the other until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if self.calls.is_multiple_of(10) {
                self.wait_for_room(&stop).await;
            }
            let wish = self.wish();
            self.call(wish).await;
        }
    }

    async fn wait_for_room(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let backlog = sqlx::query_scalar::<_, i64>(BACKLOG).fetch_one(&self.pool);
            if backlog.await.is_ok_and(|backlog| backlog < ENOUGH) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn wish(&mut self) -> Wish {
        let dice = &mut self.dice;
        let fails = *dice.pick(&[0, 0, 0, 0, 0, 0, 1, 1, 2, 2 * MOST_ATTEMPTS]);
        let wish = match dice.below(11) {
            0 => Wish::new(Way::RolledBack, EFFECT),
            1 => Wish::new(Way::Ledger, LEDGER),
            2 => Wish::new(Way::Sql, PLAIN).fails(fails),
            3 => Wish::new(Way::Grouped, EFFECT),
            4 => Wish::new(Way::Grouped, EFFECT).lane(format!("own-{}", self.name)),
            5 => Wish::new(Way::Transaction, INBOX),
            6 => Wish::new(Way::Transaction, PUBLISH),
            7 => Wish::new(Way::Transaction, EFFECT)
                .fails(fails)
                .lane(format!("shared-{}", dice.below(4))),
            8 => Wish::new(Way::Transaction, PLAIN).fails(fails),
            9 => Wish::new(Way::Transaction, MESSAGE),
            _ => Wish::new(Way::Transaction, EFFECT).fails(fails),
        };
        wish.takes(dice.millis(0, 20))
    }

    /// One call, in the journal from before its beginning to after its end.
    pub async fn call(&mut self, wish: Wish) {
        let key = format!("{}-{}", self.name, self.calls);
        self.calls += 1;
        let lane = wish.lane.as_deref().unwrap_or("-");
        (self.pen)(format!("try {key} {} {} {lane}", wish.topic, wish.fails));
        let pause = self.dice.millis(0, 4);
        let (pool, enqueuer) = (self.pool.clone(), Arc::clone(&self.enqueuer));
        let asked = key.clone();
        // In a task of its own: a crash point may panic in here.
        let told = tokio::spawn(async move { ask(&pool, &enqueuer, &asked, wish, pause).await })
            .await
            .unwrap_or(Answer::Told(Told::Unknown));
        let told = match told {
            Answer::Told(told) => told,
            Answer::Stopped => {
                self.enqueuer = start_enqueuer(&self.pool);
                Told::Unknown
            }
        };
        let word = match told {
            Told::Ok => "ok",
            Told::Failed => "failed",
            Told::Unknown => "unknown",
        };
        (self.pen)(format!("{word} {key}"));
    }
}

enum Answer {
    Told(Told),
    /// The enqueuer's writer is gone.
    Stopped,
}

fn start_enqueuer(pool: &PgPool) -> Arc<Enqueuer> {
    let options = EnqueuerOptions {
        writers: 1,
        ..EnqueuerOptions::default()
    };
    Arc::new(Enqueuer::start(pool, None, options))
}

async fn ask(pool: &PgPool, enqueuer: &Enqueuer, key: &str, wish: Wish, pause: Duration) -> Answer {
    let task = Task {
        key: key.to_owned(),
        fails: wish.fails,
        millis: wish.millis,
    };
    let mut message = Message::new(wish.topic, &task).unwrap();
    if let Some(lane) = &wish.lane {
        message = message.ordering_key(lane.as_str()).unwrap();
    }
    let told = match wish.way {
        Way::Grouped => match enqueuer.enqueue(message).await {
            Ok(_) => Told::Ok,
            Err(Error::Stopped(_)) => return Answer::Stopped,
            Err(_) => Told::Unknown,
        },
        Way::Sql => {
            let text = serde_json::to_string(&task).unwrap();
            let call = sqlx::query(BY_SQL).bind(wish.topic).bind(text).bind(key);
            match call.execute(pool).await {
                Ok(_) => Told::Ok,
                Err(_) => Told::Unknown,
            }
        }
        way => match transaction(pool, key, &message, way, pause).await {
            Ok(told) => told,
            // It never came to the commit.
            Err(_) => Told::Failed,
        },
    };
    Answer::Told(told)
}

async fn transaction(
    pool: &PgPool,
    key: &str,
    message: &Message,
    way: Way,
    pause: Duration,
) -> Result<Told> {
    let mut tx = pool.begin().await?;
    if way == Way::Ledger {
        let request = Key::new("proof", key).unwrap();
        let digest = Digest::of(&key).unwrap();
        let accepted = Ledger::default().accept(&mut tx, &request, &digest).await;
        match accepted {
            Ok(Acceptance::Accepted) => {}
            Ok(other) => panic!("a fresh key was answered with {other:?}"),
            Err(_) => return Ok(Told::Failed),
        }
    }
    let receipt = enqueue(&mut tx, message).await?;
    tokio::time::sleep(pause).await;
    sqlx::query(BUSINESS)
        .bind(key)
        .bind(receipt.id)
        .execute(&mut *tx)
        .await?;
    if way == Way::RolledBack {
        tx.rollback().await?;
        return Ok(Told::Failed);
    }
    Ok(match tx.commit().await {
        Ok(()) => Told::Ok,
        Err(_) => Told::Unknown,
    })
}
