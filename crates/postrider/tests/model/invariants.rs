//! The promises, as predicates over one moment.
//!
//! They must hold in every world that can be reached. That it ends well is asked of every world too:
//! from here, with nobody crashing any more, does the protocol finish? This says more than the
//! checker's own `eventually`, which does not notice a path that runs in circles.

use crate::protocol::Protocol;
use crate::state::{Cause, Duty, Held, Row, State, Step, Worker, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {
    /// I1: what was accepted is there, and done means that it happened.
    NothingLost,
    /// I2: a live lease is the row's own.
    OneOwner,
    /// I2: a stale lease changes nothing.
    StaleChangesNothing,
    /// I3: left in peace, every item comes to its end.
    CrashesRecover,
    /// I3: what has lost too many workers gets no other.
    LossesBounded,
    /// I3: a poison item buries no neighbour.
    NeighboursSpared,
    /// I4: attempts stay within their bound.
    AttemptsBounded,
    /// I3: attempts count handled outcomes; a give-back and a snooze are free.
    AttemptsEarned,
    /// I5: no effect happens twice.
    OneEffect,
    /// I5: what failed for good had no effect.
    TrueOutcome,
    /// I6: nothing is claimed before it is due.
    NotBeforeDue,
    /// I7: an end stays until an operator undoes it by name.
    TerminalStays,
    /// I8: the parent follows its items unless a recount was lost.
    ParentFollows,
    /// I8: one sweep makes the parent follow, whatever was lost.
    SweepRepairs,
    /// I8: each closing of the parent is announced once.
    OneSummary,
}

impl Invariant {
    pub const ALL: [Invariant; 15] = [
        Invariant::NothingLost,
        Invariant::OneOwner,
        Invariant::StaleChangesNothing,
        Invariant::CrashesRecover,
        Invariant::LossesBounded,
        Invariant::NeighboursSpared,
        Invariant::AttemptsBounded,
        Invariant::AttemptsEarned,
        Invariant::OneEffect,
        Invariant::TrueOutcome,
        Invariant::NotBeforeDue,
        Invariant::TerminalStays,
        Invariant::ParentFollows,
        Invariant::SweepRepairs,
        Invariant::OneSummary,
    ];
}

impl<const W: usize, const N: usize> Protocol<W, N> {
    pub fn keeps_promises(&self, world: &World<W, N>) -> bool {
        Invariant::ALL
            .iter()
            .all(|&invariant| self.holds(invariant, world))
    }

    /// The invariants that this world breaks.
    pub fn broken(&self, world: &World<W, N>) -> Vec<Invariant> {
        let broken = |&invariant: &Invariant| !self.holds(invariant, world);
        Invariant::ALL.into_iter().filter(broken).collect()
    }

    pub fn holds(&self, invariant: Invariant, world: &World<W, N>) -> bool {
        match invariant {
            Invariant::NothingLost => self.nothing_lost(world),
            Invariant::OneOwner => self.one_owner(world),
            Invariant::StaleChangesNothing => !world.trespassed,
            Invariant::CrashesRecover => self.recovers(world),
            Invariant::LossesBounded => self.losses_bounded(world),
            Invariant::NeighboursSpared => self.neighbours_spared(world),
            Invariant::AttemptsBounded => self.attempts_bounded(world),
            Invariant::AttemptsEarned => self.attempts_earned(world),
            Invariant::OneEffect => self.one_effect(world),
            Invariant::TrueOutcome => self.true_outcome(world),
            Invariant::NotBeforeDue => self.not_before_due(world),
            Invariant::TerminalStays => self.terminal_stays(world),
            Invariant::ParentFollows => self.parent_follows(world),
            Invariant::SweepRepairs => self.sweep_repairs(world),
            Invariant::OneSummary => self.one_summary(world),
        }
    }

    fn nothing_lost(&self, world: &World<W, N>) -> bool {
        (0..N).all(|i| {
            let row = &world.now.rows[i];
            match row.state {
                State::Absent => !row.accepted,
                State::Done => effects(world, i) > 0 || world.parties[i].copies > 0,
                State::Ready | State::Leased | State::Waiting | State::Dead(_) => true,
            }
        })
    }

    fn one_owner(&self, world: &World<W, N>) -> bool {
        let own = |row: &Row, held: Held| row.state == State::Leased && row.claim == held.claim;
        !any_lease(world, |row, held| held.live && !own(row, held))
    }

    fn losses_bounded(&self, world: &World<W, N>) -> bool {
        let max = self.scenario.max_losses;
        let handles = |held: Held| held.live && held.step != Step::GivingUp;
        !any_lease(world, |row, held| row.losses >= max && handles(held))
    }

    /// Asked where nothing but the poison kills.
    fn neighbours_spared(&self, world: &World<W, N>) -> bool {
        let marked_dead = |i: usize| world.now.rows[i].state == State::Dead(Cause::WorkerLost);
        self.scenario.chaos || (0..N).all(|i| !marked_dead(i) || self.scenario.poison == Some(i))
    }

    fn attempts_bounded(&self, world: &World<W, N>) -> bool {
        let max = self.scenario.max_attempts;
        world.now.rows.iter().all(|row| row.attempts <= max)
    }

    fn attempts_earned(&self, world: &World<W, N>) -> bool {
        (0..N).all(|i| world.now.rows[i].attempts <= world.handled[i])
    }

    fn one_effect(&self, world: &World<W, N>) -> bool {
        (0..N).all(|i| effects(world, i) <= 1)
    }

    fn true_outcome(&self, world: &World<W, N>) -> bool {
        let refused = |i: usize| world.now.rows[i].state == State::Dead(Cause::Refused);
        (0..N).all(|i| !refused(i) || effects(world, i) == 0)
    }

    fn not_before_due(&self, world: &World<W, N>) -> bool {
        let hasty = |row: &Row| row.state == State::Leased && !row.due;
        !world.now.rows.iter().any(hasty)
    }

    fn terminal_stays(&self, world: &World<W, N>) -> bool {
        let stays = |i: usize| world.told[i].is_none_or(|end| end == world.now.rows[i].state);
        (0..N).all(stays)
    }

    fn parent_follows(&self, world: &World<W, N>) -> bool {
        let idle = |duty: Duty| duty == Duty::Nothing;
        let owed = !idle(world.operator) || world.workers.iter().any(|w| !idle(w.duty));
        !self.scenario.family || world.now.job_follows_items() || owed || world.recount_lost
    }

    fn one_summary(&self, world: &World<W, N>) -> bool {
        let reopened = self.scenario.redrives - world.redrives_left;
        world.now.job.summaries <= 1 + reopened
    }
}

pub fn any_lease<const W: usize, const N: usize>(
    world: &World<W, N>,
    so: impl Fn(&Row, Held) -> bool,
) -> bool {
    let holds = |worker: &Worker<N>, i: usize| {
        worker.held[i].is_some_and(|held| so(&world.now.rows[i], held))
    };
    world
        .workers
        .iter()
        .any(|worker| (0..N).any(|i| holds(worker, i)))
}

/// Counted in the append-only log and at the other side, never by the guards.
fn effects<const W: usize, const N: usize>(world: &World<W, N>, i: usize) -> u8 {
    world.now.rows[i].effects + world.parties[i].effects
}
