//! Sights that a search must come by. A search that never goes where the danger is proves nothing.

use crate::invariants::any_lease;
use crate::protocol::Protocol;
use crate::state::{Cause, Row, State, Step, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// Everything is done, though a worker was lost on the way.
    DoneAfterLoss,
    /// An item has lost too many workers.
    MarkedDead,
    /// A worker lives on with a lease that another one has now.
    TwoHolders,
    /// A worker lives on with a lease that the server has forgotten.
    ForgottenClaim,
    /// A dead item was redriven, and all is done.
    RedrivenAndDone,
    /// The other side has done it, and a worker that does not know is about to ask for it.
    UnheardEffect,
    /// Two copies of a message are under way, and the consumer knows it already.
    Duplicate,
    /// A recount was lost, and the parent is behind.
    ParentBehind,
    /// The parent is closed while an item of it is open again.
    ClosedTooSoon,
}

impl<const W: usize, const N: usize> Protocol<W, N> {
    /// Whether this world is what the witness saw.
    pub fn shows(&self, witness: Witness, world: &World<W, N>) -> bool {
        let rows = &world.now.rows;
        let leased = |row: &Row| row.state == State::Leased;
        let all_done = || rows.iter().all(|row| row.state == State::Done);
        match witness {
            Witness::DoneAfterLoss => all_done() && rows.iter().any(|row| row.losses > 0),
            Witness::MarkedDead => rows
                .iter()
                .any(|row| row.state == State::Dead(Cause::WorkerLost)),
            Witness::TwoHolders => {
                any_lease(world, |row, held| leased(row) && row.claim != held.claim)
            }
            Witness::ForgottenClaim => any_lease(world, |row, held| {
                let untouched = row.attempts == 0 && row.losses == 0;
                row.state == State::Ready && untouched && world.handled == [0; N] && !held.live
            }),
            Witness::RedrivenAndDone => world.redrives_left < self.scenario.redrives && all_done(),
            Witness::UnheardEffect => world.workers.iter().any(|worker| {
                let fresh = |i: usize| worker.held[i].is_some_and(|held| held.step == Step::Fresh);
                (0..N).any(|i| world.parties[i].effects > 0 && fresh(i))
            }),
            Witness::Duplicate => (0..N).any(|i| world.parties[i].copies > 1 && rows[i].inbox),
            Witness::ParentBehind => world.recount_lost,
            Witness::ClosedTooSoon => world.now.job.summaries > 0 && !world.now.job_follows_items(),
        }
    }
}
