//! Effects that a settle alone cannot make safe: a call to a service, a message to a consumer.

use crate::protocol::Protocol;
use crate::scenarios::Work;
use crate::settle::TOO_MANY;
use crate::state::{Answer, Step, World};

/// How one request to the other side goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It agrees, and we hear it.
    Yes,
    /// It declines for good, and we hear it.
    No,
    /// It agrees, and the answer is lost.
    YesUnheard,
    /// The request itself is lost.
    Nothing,
    /// Broken alternative: the request is lost, and we take sending for success.
    Assumed,
}

/// How one delivery to the consumer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// Committed, and the broker forgets the copy.
    Acknowledged,
    /// Committed, and the consumer dies before it says so.
    Unacknowledged,
    /// Broken alternative: the effect is committed, and the consumer dies before its inbox row.
    Torn,
}

/// More copies in flight show nothing new.
const MAX_COPIES: u8 = 2;

impl<const W: usize, const N: usize> Protocol<W, N> {
    /// The ways in which acting on a fresh item can go.
    pub fn replies(&self, world: &World<W, N>, i: usize) -> &'static [Reply] {
        use Reply::{Assumed, No, Nothing, Yes, YesUnheard};
        match self.scenario.work[i] {
            Work::InDatabase if self.guards.effect_with_settle => &[],
            Work::InDatabase => &[Yes],
            Work::Call if world.parties[i].answer.is_none() => &[Yes, No, YesUnheard, Nothing],
            Work::Call => &[Yes, Nothing],
            Work::Message if self.guards.publish_confirmed => &[Yes, YesUnheard, Nothing],
            Work::Message => &[Yes, YesUnheard, Nothing, Assumed],
        }
    }

    /// The handler acts. No transaction is open and no lock is held meanwhile.
    pub fn act(&self, world: &mut World<W, N>, w: usize, i: usize, reply: Reply) {
        let step = match self.scenario.work[i] {
            Work::InDatabase => self.apply_apart(world, i),
            Work::Call => self.call(world, i, reply),
            Work::Message => self.publish(world, i, reply),
        };
        self.set_step(world, w, i, step);
    }

    fn set_step(&self, world: &mut World<W, N>, w: usize, i: usize, step: Step) {
        if let Some(held) = &mut world.workers[w].held[i] {
            held.step = step;
        }
    }

    /// Broken alternative: the effect in a transaction of its own, before the settle.
    fn apply_apart(&self, world: &mut World<W, N>, i: usize) -> Step {
        let row = &mut world.now.rows[i];
        row.effects = (row.effects + 1).min(TOO_MANY);
        world.commit();
        Step::Accepted
    }

    fn call(&self, world: &mut World<W, N>, i: usize, reply: Reply) -> Step {
        let party = &mut world.parties[i];
        if reply == Reply::Nothing {
            return Step::Unclear;
        }
        match party.answer {
            Some(Answer::No) => Step::Refused,
            Some(Answer::Yes) if !self.guards.key_stable => {
                party.effects = TOO_MANY;
                Step::Accepted
            }
            // "Duplicate": it says that it knows the key, and not how that request ended.
            Some(Answer::Yes) if self.guards.look_up_unclear => Step::Unclear,
            Some(Answer::Yes) => Step::Refused,
            None if reply == Reply::No => {
                party.answer = Some(Answer::No);
                Step::Refused
            }
            None => {
                party.answer = Some(Answer::Yes);
                party.effects = 1;
                if reply == Reply::Yes {
                    Step::Accepted
                } else {
                    Step::Unclear
                }
            }
        }
    }

    /// Asks the other side what became of the key.
    pub fn look_up(&self, world: &mut World<W, N>, w: usize, i: usize) {
        let step = match world.parties[i].answer {
            Some(Answer::Yes) => Step::Accepted,
            Some(Answer::No) => Step::Refused,
            None => Step::Failed,
        };
        self.set_step(world, w, i, step);
    }

    fn publish(&self, world: &mut World<W, N>, i: usize, reply: Reply) -> Step {
        let party = &mut world.parties[i];
        match reply {
            Reply::Nothing | Reply::No => return Step::Failed,
            Reply::Assumed => return Step::Accepted,
            Reply::Yes | Reply::YesUnheard => {}
        }
        party.copies = (party.copies + 1).min(MAX_COPIES);
        if reply == Reply::Yes {
            Step::Accepted
        } else {
            Step::Failed
        }
    }

    pub fn receipts(&self) -> &'static [Receipt] {
        use Receipt::{Acknowledged, Torn, Unacknowledged};
        if self.guards.inbox_with_effect {
            &[Acknowledged, Unacknowledged]
        } else {
            &[Acknowledged, Unacknowledged, Torn]
        }
    }

    /// The consumer takes one copy: inbox row and effect in one transaction, then the receipt.
    pub fn deliver(&self, world: &mut World<W, N>, i: usize, receipt: Receipt) {
        let row = &mut world.now.rows[i];
        if !row.inbox || !self.guards.inbox_unique {
            row.effects = (row.effects + 1).min(TOO_MANY);
        }
        row.inbox |= receipt != Receipt::Torn;
        if self.guards.inbox_durable {
            world.commit();
        }
        if receipt == Receipt::Acknowledged {
            world.parties[i].copies -= 1;
        }
    }
}
