//! Does it end well from here? Everybody is restarted once and then left in peace.

use crate::effect::Reply;
use crate::parent::Actor;
use crate::protocol::Protocol;
use crate::settle::Verdict;
use crate::state::{Duty, State, Step, World};

impl<const W: usize, const N: usize> Protocol<W, N> {
    /// One healthy worker, polling by the protocol's own steps, brings every item to an end.
    pub fn recovers(&self, world: &World<W, N>) -> bool {
        let ended = |world: &World<W, N>| world.now.rows.iter().all(|row| is_ended(row.state));
        if ended(world) {
            return true;
        }
        let mut world = *world;
        for w in 0..W {
            self.kill_worker(&mut world, w);
        }
        // Each round ends an item or costs it one of its losses.
        for _ in 0..=self.scenario.max_losses {
            for i in 0..N {
                self.finish(&mut world, i);
            }
            if ended(&world) {
                return true;
            }
        }
        false
    }

    fn finish(&self, world: &mut World<W, N>, i: usize) {
        match world.now.rows[i].state {
            State::Leased => self.expire(world, i),
            State::Waiting => self.come_due(world, i),
            State::Absent | State::Ready | State::Done | State::Dead(_) => {}
        }
        if self.may_claim(world, 0, i) {
            self.claim(world, 0, i);
            self.handle(world, i);
        }
    }

    fn handle(&self, world: &mut World<W, N>, i: usize) {
        while let Some(held) = world.workers[0].held[i] {
            let verdict = match held.step {
                Step::GivingUp => Verdict::MarkDead,
                _ if self.scenario.poison == Some(i) => return self.kill_worker(world, 0),
                Step::Fresh if !self.replies(world, i).is_empty() => {
                    self.act(world, 0, i, Reply::Yes);
                    continue;
                }
                Step::Unclear if self.guards.look_up_unclear => {
                    self.look_up(world, 0, i);
                    continue;
                }
                Step::Fresh | Step::Accepted | Step::Counted(_) => Verdict::Done,
                Step::Refused => Verdict::Dead,
                Step::Failed | Step::Unclear => Verdict::Retry,
            };
            self.settle(world, 0, i, verdict, true);
        }
    }

    /// The sweep alone, after everybody else has died.
    pub fn sweep_repairs(&self, world: &World<W, N>) -> bool {
        if !self.scenario.family || world.now.job_follows_items() {
            return true;
        }
        let mut world = *world;
        for w in 0..W {
            self.kill_worker(&mut world, w);
        }
        world.operator = Duty::Nothing;
        if self.sweep_finds(&world) {
            self.recount(&mut world, Actor::Operator);
            self.conclude(&mut world, Actor::Operator);
        }
        world.now.job_follows_items()
    }
}

/// An item that nobody ever asked for has nothing to end.
fn is_ended(state: State) -> bool {
    state.is_terminal() || state == State::Absent
}
