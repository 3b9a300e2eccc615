//! The network between the engine and its database fails: cut before a COMMIT, after it, anywhere; half-open; slow; one
//! byte at a time. Each fault strikes while a call waits at a crash point, so that it meets every verb.

use std::time::Duration;

use postrider_testkit::proxy::CommitCut;
use postrider_testkit::{Proxy, crash};

use crate::anywhere::{all, side_by_side};
use crate::case;
use crate::check::{Allowed, check};
use crate::dice::Dice;
use crate::journal::{Journal, Paper};
use crate::scale;
use crate::stage::{PATIENCE, Place, Stage};

const LEASE: Duration = Duration::from_millis(600);

#[derive(Debug, Clone, Copy)]
enum Fault {
    CutBeforeCommit,
    CutAfterCommit,
    Cut,
    HalfOpen,
    Refused,
    Slow,
    ByteByByte,
}

const FAULTS: [Fault; 7] = [
    Fault::CutBeforeCommit,
    Fault::CutAfterCommit,
    Fault::Cut,
    Fault::HalfOpen,
    Fault::Refused,
    Fault::Slow,
    Fault::ByteByByte,
];

#[test]
fn whatever_the_network_does_nothing_is_lost_and_nothing_doubled() {
    let mut dice = Dice::of("network");
    let mut cases = Vec::new();
    for fault in FAULTS {
        let mut points = all();
        while points.len() > scale::verbs() {
            points.swap_remove(dice.below(points.len()));
        }
        for point in points {
            let dice = dice.split();
            let name = format!("{fault:?} at {point}");
            cases.push((name, async move || strike(fault, &point, dice).await));
        }
    }
    side_by_side(cases);
}

async fn strike(fault: Fault, point: &str, dice: Dice) {
    let stage = Stage::new().await;
    let proxy = Proxy::for_database(&stage.db).await;
    let place = Place {
        database: proxy.connect_options(),
        outside: stage.outside.address,
    };
    let direct = stage.place();
    let paper = Paper::default();
    let waits = crash::at(point).pause();
    let playing = case::play(&place, &direct, 3, LEASE, dice, paper.pen());
    let striking = async {
        tokio::time::timeout(PATIENCE, waits.reached())
            .await
            .expect("no call reached the point");
        cause(fault, &proxy).await;
        waits.release();
        heal(fault, &proxy).await;
    };
    tokio::join!(playing, striking);
    let mut journal = Journal::default();
    journal.read(&paper.lines());
    let allowed = Allowed::default();
    check(&stage.db.pool(), &journal, &stage.outside, allowed).await;
}

async fn cause(fault: Fault, proxy: &Proxy) {
    match fault {
        Fault::CutBeforeCommit => proxy.cut_at_commit(CommitCut::BeforeServer),
        Fault::CutAfterCommit => proxy.cut_at_commit(CommitCut::BeforeAnswer),
        Fault::Cut => proxy.cut(),
        Fault::HalfOpen => proxy.black_hole(),
        Fault::Refused => {
            proxy.refuse();
            proxy.cut();
        }
        Fault::Slow => proxy.delay(Duration::from_millis(20)),
        Fault::ByteByByte => proxy.trickle(),
    }
}

async fn heal(fault: Fault, proxy: &Proxy) {
    match fault {
        Fault::CutBeforeCommit | Fault::CutAfterCommit | Fault::Cut => proxy.wait_for_cuts(1).await,
        // Longer than a lease.
        Fault::HalfOpen => {
            tokio::time::sleep(LEASE * 2).await;
            // What was swallowed never comes; some day one side notices.
            proxy.cut();
        }
        Fault::Refused => tokio::time::sleep(LEASE * 2).await,
        Fault::Slow | Fault::ByteByByte => tokio::time::sleep(LEASE).await,
    }
    proxy.pass();
}
