//! Hashing. The checker knows a world by its hash alone and computes millions of them, so a world is
//! first packed into a handful of numbers. No field may be left out or be cut: two worlds that look
//! the same to the checker are searched once.

use std::hash::{Hash, Hasher};

use crate::state::{Answer, Cause, Duty, Held, JobState, NOBODY, Row, State, Step, Worker, World};

/// A number that fields are shifted into, and how much of it is used.
struct Packed {
    number: u64,
    used: u32,
}

impl Packed {
    const EMPTY: Packed = Packed { number: 0, used: 0 };

    /// Adds a field of at most `bits` bits.
    fn put(&mut self, value: u8, bits: u32) {
        assert!(value < 1 << bits, "a field has outgrown its bits");
        self.number = self.number << bits | u64::from(value);
        self.used += bits;
    }

    fn number(self) -> u64 {
        assert!(self.used <= u64::BITS, "too many fields for one number");
        self.number
    }
}

impl<const W: usize, const N: usize> Hash for World<W, N> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for i in 0..N {
            let mut item = Packed::EMPTY;
            put_row(&mut item, &self.now.rows[i]);
            put_row(&mut item, &self.durable.rows[i]);
            let party = &self.parties[i];
            item.put(party.answer.map_or(0, answer), 2);
            item.put(party.effects, 2);
            item.put(party.copies, 2);
            item.put(self.told[i].map_or(0, state), 4);
            hasher.write_u64(item.number());
        }
        let mut rest = Packed::EMPTY;
        for i in 0..N {
            rest.put(self.handled[i], 3);
        }
        rest.put(job(self.now.job.state), 2);
        rest.put(self.now.job.summaries, 3);
        rest.put(job(self.durable.job.state), 2);
        rest.put(self.durable.job.summaries, 3);
        rest.put(duty(self.operator), 4);
        rest.put(self.redrives_left, 3);
        rest.put(u8::from(self.trespassed), 1);
        rest.put(u8::from(self.recount_lost), 1);
        hasher.write_u64(rest.number());
        for worker in &self.workers {
            hasher.write_u64(worker.packed());
        }
    }
}

impl<const N: usize> Worker<N> {
    /// Equal for equal workers alone, so also an order for them.
    pub fn packed(&self) -> u64 {
        let mut packed = Packed::EMPTY;
        for held in &self.held {
            put_held(&mut packed, held.as_ref().unwrap_or(&NOT_HELD));
        }
        packed.put(duty(self.duty), 4);
        packed.number()
    }
}

fn put_row(packed: &mut Packed, row: &Row) {
    packed.put(u8::from(row.accepted), 1);
    packed.put(state(row.state), 4);
    packed.put(row.attempts, 3);
    packed.put(row.losses, 3);
    packed.put(u8::from(row.due), 1);
    packed.put(u8::from(row.expired), 1);
    packed.put(row.fence, 5);
    packed.put(row.claim, 3);
    packed.put(u8::from(row.inbox), 1);
    packed.put(row.effects, 2);
}

/// No real lease looks like this: a claim has a name.
const NOT_HELD: Held = Held {
    fence: NOBODY,
    step: Step::Fresh,
    claim: NOBODY,
    live: false,
};

fn put_held(packed: &mut Packed, held: &Held) {
    packed.put(held.fence, 5);
    packed.put(step(held.step), 3);
    packed.put(held.claim, 3);
    packed.put(u8::from(held.live), 1);
}

fn state(state: State) -> u8 {
    match state {
        State::Absent => 1,
        State::Ready => 2,
        State::Leased => 3,
        State::Waiting => 4,
        State::Done => 5,
        State::Dead(Cause::Refused) => 6,
        State::Dead(Cause::Exhausted) => 7,
        State::Dead(Cause::WorkerLost) => 8,
        State::Dead(Cause::Cancelled) => 9,
    }
}

fn step(step: Step) -> u8 {
    match step {
        Step::Fresh => 0,
        Step::Accepted => 1,
        Step::Refused => 2,
        Step::Failed => 3,
        Step::Unclear => 4,
        Step::Counted(false) => 5,
        Step::Counted(true) => 6,
        Step::GivingUp => 7,
    }
}

fn answer(answer: Answer) -> u8 {
    match answer {
        Answer::Yes => 1,
        Answer::No => 2,
    }
}

fn job(state: JobState) -> u8 {
    match state {
        JobState::Open => 0,
        JobState::Succeeded => 1,
        JobState::Failed => 2,
    }
}

fn duty(duty: Duty) -> u8 {
    match duty {
        Duty::Nothing => 0,
        Duty::Recount => 1,
        Duty::Counted { seen, found } => 2 + 3 * job(seen) + job(found),
    }
}
