//! Settle: how a worker ends its lease, and how operators act on items.

use crate::protocol::Protocol;
use crate::scenarios::Work;
use crate::state::{Cause, Held, Row, State, Step, World};

/// What a handler says about its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Done,
    Retry,
    Dead,
    Snooze,
    GiveBack,
    /// Said of an item that has lost too many workers.
    MarkDead,
}

/// More effects than this are as wrong as this many.
pub const TOO_MANY: u8 = 2;

impl<const W: usize, const N: usize> Protocol<W, N> {
    /// What the handler can say after what it has seen.
    pub fn verdicts(&self, i: usize, step: Step) -> &'static [Verdict] {
        use Verdict::{Dead, Done, GiveBack, MarkDead, Retry, Snooze};
        let scenario = &self.scenario;
        match (step, scenario.work[i]) {
            (Step::GivingUp, _) => &[MarkDead],
            _ if scenario.poison == Some(i) => &[GiveBack],
            (Step::Fresh, Work::InDatabase) if !self.guards.recount_after_commit => &[],
            (Step::Fresh, Work::InDatabase) if !self.guards.effect_with_settle => {
                &[Retry, Dead, Snooze, GiveBack]
            }
            (Step::Fresh | Step::Counted(_), Work::InDatabase) => {
                &[Done, Retry, Dead, Snooze, GiveBack]
            }
            (Step::Fresh | Step::Counted(_), Work::Call | Work::Message) => &[Snooze, GiveBack],
            (Step::Accepted, _) => &[Done],
            (Step::Refused, _) => &[Dead],
            (Step::Failed, _) => &[Retry],
            (Step::Unclear, _) if self.guards.look_up_unclear => &[],
            (Step::Unclear, _) => &[Retry],
        }
    }

    /// The condition of the settling statement.
    pub fn may_settle(&self, row: &Row, held: &Held) -> bool {
        let leased = row.state == State::Leased || !self.guards.terminal_is_terminal;
        let fenced = row.fence == held.fence || !self.guards.fence_at_settle;
        leased && fenced
    }

    /// One settle, in one transaction with the effect. `heard` is whether the answer to the commit
    /// arrives; if not, the worker still believes in its lease and will settle again.
    pub fn settle(&self, world: &mut World<W, N>, w: usize, i: usize, said: Verdict, heard: bool) {
        let Some(held) = world.workers[w].held[i] else {
            return;
        };
        if heard {
            world.workers[w].held[i] = None;
        }
        let row = &mut world.now.rows[i];
        if !self.may_settle(row, &held) {
            return; // LostLease: nothing changes, whatever else the transaction wrote
        }
        world.trespassed |= row.claim != held.claim;
        if let Some(held) = &mut world.workers[w].held[i] {
            held.live = false;
        }
        let handled = matches!(said, Verdict::Done | Verdict::Retry | Verdict::Dead);
        if handled {
            world.handled[i] += 1;
        }
        if handled || !self.guards.give_back_free {
            row.attempts = (row.attempts + 1).min(self.scenario.max_attempts + 1);
        }
        let exhausted = row.attempts >= self.scenario.max_attempts && self.guards.attempts_bounded;
        let next = match said {
            Verdict::Done => State::Done,
            Verdict::Dead => State::Dead(Cause::Refused),
            Verdict::Retry if exhausted => State::Dead(Cause::Exhausted),
            Verdict::Retry | Verdict::Snooze => State::Waiting,
            Verdict::GiveBack => State::Ready,
            Verdict::MarkDead => State::Dead(Cause::WorkerLost),
        };
        if said == Verdict::Done && self.commits_effect(i) {
            row.effects = (row.effects + 1).min(TOO_MANY);
        }
        self.end(row, next);
        if next.is_terminal() {
            world.told[i] = Some(next);
            self.owe_recount_by_worker(world, w, held.step, heard);
        }
        self.commit_settle(world);
    }

    fn commits_effect(&self, i: usize) -> bool {
        self.scenario.work[i] == Work::InDatabase && self.guards.effect_with_settle
    }

    pub fn commit_settle(&self, world: &mut World<W, N>) {
        if self.guards.settle_durable {
            world.commit();
        }
    }

    /// The caller's row and the item, in one transaction.
    pub fn accept(&self, world: &mut World<W, N>, i: usize) {
        let row = &mut world.now.rows[i];
        row.accepted = true;
        if self.guards.enqueue_in_callers_transaction {
            row.state = State::Ready;
        } // else the caller died before its second transaction
        world.commit();
    }

    /// An operator ends an unfinished item; its worker finds the lease lost.
    pub fn cancel(&self, world: &mut World<W, N>, i: usize) {
        let row = &mut world.now.rows[i];
        self.end(row, State::Dead(Cause::Cancelled));
        world.told[i] = Some(row.state);
        world.end_leases(i);
        self.commit_settle(world);
        self.owe_recount_by_operator(world);
    }

    /// An operator lets a dead item begin again: the only way out of an end.
    pub fn redrive(&self, world: &mut World<W, N>, i: usize) {
        let row = &mut world.now.rows[i];
        self.end(row, State::Ready);
        row.attempts = 0;
        row.losses = 0;
        world.handled[i] = 0;
        world.told[i] = None;
        world.redrives_left -= 1;
        self.commit_settle(world);
        self.owe_recount_by_operator(world);
    }
}
