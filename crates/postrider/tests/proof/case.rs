//! One pass over everything that the engine does, small enough to be repeated for each crash point: calls in every way,
//! items of every kind that succeed, fail and die, two lanes, a slow item whose lease must be renewed, and one that a
//! lost worker left behind.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::dice::Dice;
use crate::journal::Pen;
use crate::messages::MESSAGE;
use crate::produce::{Producer, Way, Wish};
use crate::stage::{Place, finished};
use crate::work::{EFFECT, INBOX, LEDGER, MOST_ATTEMPTS, PLAIN, PUBLISH, supervise};

/// The first item, as a worker that is no more would have left it.
const LEFT_BEHIND: &str = "
    update postrider.outbox
    set state = 'leased', lease_until = now() - interval '1 second', fence = 1, lease_owner = 'gone'";

fn wishes(lease: Duration) -> Vec<Wish> {
    let too_often = 2 * MOST_ATTEMPTS;
    vec![
        Wish::new(Way::Transaction, EFFECT).takes(lease * 3 / 4),
        Wish::new(Way::Transaction, EFFECT).fails(1),
        Wish::new(Way::Transaction, EFFECT).fails(too_often),
        Wish::new(Way::RolledBack, EFFECT),
        Wish::new(Way::Transaction, PLAIN),
        Wish::new(Way::Transaction, PLAIN).fails(1),
        Wish::new(Way::Transaction, PLAIN).fails(too_often),
        Wish::new(Way::Sql, PLAIN),
        Wish::new(Way::Transaction, PUBLISH),
        Wish::new(Way::Transaction, MESSAGE),
        Wish::new(Way::Transaction, INBOX),
        Wish::new(Way::Ledger, LEDGER),
        Wish::new(Way::Grouped, EFFECT),
        Wish::new(Way::Grouped, EFFECT).lane("own"),
        Wish::new(Way::Grouped, EFFECT).lane("own"),
        Wish::new(Way::Transaction, EFFECT).lane("shared").fails(1),
        Wish::new(Way::Transaction, PLAIN).lane("shared"),
        Wish::new(Way::Transaction, EFFECT).lane("shared"),
        Wish::new(Way::Transaction, PUBLISH),
        Wish::new(Way::Transaction, MESSAGE),
        Wish::new(Way::Transaction, INBOX),
        Wish::new(Way::Ledger, LEDGER),
    ]
}

/// Plays it, with producers and a worker that reach the database through `place`, until everything is done or dead.
pub async fn play(place: &Place, direct: &Place, size: u32, lease: Duration, dice: Dice, pen: Pen) {
    let watch = direct.pool(1);
    let mut producer = Producer::new(place.pool(4), "case", dice, pen);
    producer.call(Wish::new(Way::Transaction, EFFECT)).await;
    sqlx::query(LEFT_BEHIND).execute(&watch).await.unwrap();
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    let worker = supervise(place.clone(), size, "case".to_owned(), lease, stop.clone());
    let worker = tokio::spawn(worker);
    for wish in wishes(lease) {
        producer.call(wish).await;
    }
    finished(&watch).await;
    stop.cancel();
    worker.await.unwrap();
}

/// A worker for what a killed process left.
pub async fn clean_up(place: &Place, lease: Duration) {
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    let worker = supervise(place.clone(), 3, "next".to_owned(), lease, stop.clone());
    let worker = tokio::spawn(worker);
    finished(&place.pool(1)).await;
    stop.cancel();
    worker.await.unwrap();
}
