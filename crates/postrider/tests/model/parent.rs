//! The parent of all items: judged after each end by a recount under its lock, and by a sweep.

use crate::protocol::Protocol;
use crate::state::{Duty, JobState, Step, World};

/// Who can owe the parent a recount: a worker, or the actor of operators and sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    Worker(usize),
    Operator,
}

impl<const W: usize, const N: usize> Protocol<W, N> {
    pub fn duty(&self, world: &World<W, N>, actor: Actor) -> Duty {
        match actor {
            Actor::Worker(w) => world.workers[w].duty,
            Actor::Operator => world.operator,
        }
    }

    fn set_duty(&self, world: &mut World<W, N>, actor: Actor, duty: Duty) {
        match actor {
            Actor::Worker(w) => world.workers[w].duty = duty,
            Actor::Operator => world.operator = duty,
        }
    }

    pub fn owe_recount_by_operator(&self, world: &mut World<W, N>) {
        if self.scenario.family {
            world.operator = Duty::Recount;
        }
    }

    /// A worker has settled an item. A worker that never learns that its commit succeeded owes nothing.
    pub fn owe_recount_by_worker(
        &self,
        world: &mut World<W, N>,
        w: usize,
        step: Step,
        heard: bool,
    ) {
        if !self.scenario.family {
            return;
        }
        if !self.guards.recount_after_commit {
            if step == Step::Counted(true) {
                let found = world.now.job_of_items();
                self.judge(world, found);
            }
        } else if heard {
            world.workers[w].duty = Duty::Recount;
        } else {
            world.recount_lost = true;
        }
    }

    /// Broken alternative: looks at the siblings inside the settling transaction, where another
    /// worker's settle that has not committed yet cannot be seen.
    pub fn count_before_settle(&self, world: &mut World<W, N>, w: usize, i: usize) {
        let finished = |j: usize| j == i || world.now.rows[j].state.is_terminal();
        let last = (0..N).all(finished);
        if let Some(held) = &mut world.workers[w].held[i] {
            held.step = Step::Counted(last);
        }
    }

    pub fn may_recount(&self, world: &World<W, N>) -> bool {
        let locks = |duty: Duty| matches!(duty, Duty::Counted { .. });
        let locked = locks(world.operator) || world.workers.iter().any(|w| locks(w.duty));
        !self.guards.recount_under_lock || !locked
    }

    /// Begins the short transaction: locks the parent, then counts what is committed by now.
    pub fn recount(&self, world: &mut World<W, N>, actor: Actor) {
        let counted = Duty::Counted {
            seen: world.now.job.state,
            found: world.now.job_of_items(),
        };
        self.set_duty(world, actor, counted);
    }

    /// Ends it: writes the parent if it was wrong, and its summary with it.
    pub fn conclude(&self, world: &mut World<W, N>, actor: Actor) {
        if let Duty::Counted { seen, found } = self.duty(world, actor) {
            if seen != found {
                self.judge(world, found);
                self.commit_settle(world);
            }
            self.set_duty(world, actor, Duty::Nothing);
        }
        if world.now.job_follows_items() {
            world.recount_lost = false;
        }
    }

    fn judge(&self, world: &mut World<W, N>, found: JobState) {
        let job = &mut world.now.job;
        job.state = found;
        if found != JobState::Open {
            job.summaries = (job.summaries + 1).min(self.scenario.redrives + 2);
        }
    }

    /// Whether the sweep's query finds the parent.
    pub fn sweep_finds(&self, world: &World<W, N>) -> bool {
        self.scenario.family && self.guards.sweep && !world.now.job_follows_items()
    }

    /// A crash of the server ends every open transaction; surviving workers start theirs again.
    pub fn roll_back_recounts(&self, world: &mut World<W, N>) {
        let workers = world.workers.iter_mut().map(|worker| &mut worker.duty);
        for duty in workers.chain([&mut world.operator]) {
            if matches!(duty, Duty::Counted { .. }) {
                *duty = Duty::Recount;
            }
        }
    }
}
