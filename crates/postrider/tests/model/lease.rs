//! Claim, renew, rescue: how a lease begins and how it can end without its worker.

use crate::protocol::Protocol;
use crate::state::{Duty, Held, NOBODY, Row, State, Step, Worker, World};

impl<const W: usize, const N: usize> Protocol<W, N> {
    /// Whether a claim may take this row.
    pub fn claimable(&self, row: &Row) -> bool {
        match row.state {
            State::Absent | State::Done | State::Dead(_) => false,
            State::Ready => true,
            State::Waiting => !self.guards.claim_only_due,
            State::Leased if row.expired => self.guards.rescue_expired,
            State::Leased => !self.guards.claim_only_unleased,
        }
    }

    /// Whether the item has cost a worker its life, or may have.
    fn suspect(row: &Row) -> bool {
        row.losses > 0 || row.expired
    }

    /// Whether this worker may claim this item by itself.
    pub fn may_claim(&self, world: &World<W, N>, w: usize, i: usize) -> bool {
        let worker = &world.workers[w];
        let row = &world.now.rows[i];
        if worker.held[i].is_some() || !self.claimable(row) {
            return false;
        }
        let with_another =
            || (0..N).any(|j| worker.held[j].is_some() && Self::suspect(&world.now.rows[j]));
        !self.guards.suspects_apart || !Self::suspect(row) || !with_another()
    }

    /// Whether this worker may claim this item together with others.
    pub fn may_claim_in_batch(&self, world: &World<W, N>, w: usize, i: usize) -> bool {
        let lone = self.guards.suspects_apart && Self::suspect(&world.now.rows[i]);
        !lone && self.may_claim(world, w, i)
    }

    /// One claim. Its commit is not flushed: a crash of the server may forget it.
    pub fn claim(&self, world: &mut World<W, N>, w: usize, i: usize) {
        let claim = world.new_token(i);
        let row = &mut world.now.rows[i];
        if row.state == State::Leased {
            row.losses = (row.losses + 1).min(self.scenario.max_losses);
        }
        let hopeless = self.guards.losses_bounded && row.losses >= self.scenario.max_losses;
        let fence = if self.guards.fence_random {
            claim
        } else {
            row.fence + 1
        };
        row.state = State::Leased;
        row.expired = false;
        row.fence = fence;
        row.claim = claim;
        world.workers[w].held[i] = Some(Held {
            fence,
            step: if hopeless {
                Step::GivingUp
            } else {
                Step::Fresh
            },
            claim,
            live: true,
        });
    }

    pub fn claim_batch(&self, world: &mut World<W, N>, w: usize) {
        // Decided for all rows first: one statement sees one moment.
        let mut batch = [false; N];
        for (i, taken) in batch.iter_mut().enumerate() {
            *taken = self.may_claim_in_batch(world, w, i);
        }
        for (i, taken) in batch.into_iter().enumerate() {
            if taken {
                self.claim(world, w, i);
            }
        }
    }

    /// A heartbeat: a lease that nobody else has taken lives on, even from beyond its time.
    pub fn renew(&self, world: &mut World<W, N>, w: usize, i: usize) {
        let row = &mut world.now.rows[i];
        if let Some(held) = &mut world.workers[w].held[i] {
            row.expired = false;
            held.live = row.claim == held.claim;
        }
    }

    pub fn renewable(&self, world: &World<W, N>, w: usize, i: usize) -> bool {
        let row = &world.now.rows[i];
        let own = |held: Held| held.fence == row.fence;
        row.state == State::Leased && row.expired && world.workers[w].held[i].is_some_and(own)
    }

    /// The database's clock passes the end of the lease.
    pub fn expire(&self, world: &mut World<W, N>, i: usize) {
        world.now.rows[i].expired = true;
        world.end_leases(i);
        self.persist_time(world, i);
    }

    /// The database's clock passes the due time.
    pub fn come_due(&self, world: &mut World<W, N>, i: usize) {
        let row = &mut world.now.rows[i];
        row.state = State::Ready;
        row.due = true;
        self.persist_time(world, i);
    }

    /// Time is not a transaction: where the durable row is the same row, it has aged as well.
    fn persist_time(&self, world: &mut World<W, N>, i: usize) {
        let row = world.now.rows[i];
        let durable = &mut world.durable.rows[i];
        if durable.claim == row.claim {
            durable.expired = row.expired;
            durable.state = row.state;
            durable.due = row.due;
        }
    }

    /// Puts a row into a state without a lease.
    pub fn end(&self, row: &mut Row, state: State) {
        row.state = state;
        row.due = state != State::Waiting;
        row.expired = false;
        row.claim = NOBODY;
        // A counter must stay to be counted on; a settle that ignores the state finds its old fence.
        if self.guards.fence_random && self.guards.terminal_is_terminal {
            row.fence = NOBODY;
        }
    }

    /// The process dies with all it holds and all it owes.
    pub fn kill_worker(&self, world: &mut World<W, N>, w: usize) {
        world.recount_lost |= world.workers[w].duty != Duty::Nothing;
        world.workers[w] = Worker::IDLE;
    }

    /// The server dies and comes back with what it had flushed. Workers live on and remember
    /// leases that the database has never heard of.
    pub fn kill_server(&self, world: &mut World<W, N>) {
        world.now = world.durable;
        for i in 0..N {
            let row = world.now.rows[i];
            for worker in &mut world.workers {
                if let Some(held) = &mut worker.held[i] {
                    held.live &=
                        row.state == State::Leased && row.claim == held.claim && !row.expired;
                }
            }
        }
        self.roll_back_recounts(world);
    }
}
