//! What the checker looks at: the database, the workers and the other parties at one moment.
//!
//! Everything is small and copied whole. Fields marked *ghost* are seen by the invariants alone:
//! no step of the protocol reads them, so the checker never leans on the guards that it tests.

/// Names one claim for ever. [`NOBODY`] names none.
pub type Token = u8;
pub const NOBODY: Token = 0;

/// Where an item is in its life, in the engine's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody has asked for it yet.
    Absent,
    Ready,
    Leased,
    Waiting,
    Done,
    Dead(Cause),
}

impl State {
    pub fn is_terminal(self) -> bool {
        match self {
            State::Done | State::Dead(_) => true,
            State::Absent | State::Ready | State::Leased | State::Waiting => false,
        }
    }
}

/// Why an item is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The failure was permanent.
    Refused,
    /// The attempts were used up.
    Exhausted,
    /// It took too many workers with it.
    WorkerLost,
    /// An operator said so.
    Cancelled,
}

/// One row of a work table, with the effects that its work has had inside the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The caller's own row, which the item was enqueued with.
    pub accepted: bool,
    pub state: State,
    pub attempts: u8,
    pub losses: u8,
    /// Whether the due time has passed; a claim does not change it.
    pub due: bool,
    /// Whether the lease has run out by the database's clock.
    pub expired: bool,
    /// What a settle must show.
    pub fence: Token,
    /// *Ghost:* the claim that the lease really belongs to.
    pub claim: Token,
    /// Whether the consumer's inbox knows the message.
    pub inbox: bool,
    /// How often the effect was committed: an append-only log without a unique constraint.
    pub effects: u8,
}

/// A parent's state, which ought to be a function of its items' states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    Open,
    Succeeded,
    Failed,
}

/// The parent of all items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    pub state: JobState,
    /// How many summaries were enqueued when it closed.
    pub summaries: u8,
}

/// All that PostgreSQL keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Database<const N: usize> {
    pub rows: [Row; N],
    pub job: Job,
}

impl<const N: usize> Database<N> {
    /// The function of the items' states that the job's state has to be.
    pub fn job_of_items(&self) -> JobState {
        let mut state = JobState::Succeeded;
        for row in &self.rows {
            match row.state {
                State::Absent | State::Ready | State::Leased | State::Waiting => {
                    return JobState::Open;
                }
                State::Dead(_) => state = JobState::Failed,
                State::Done => {}
            }
        }
        state
    }

    pub fn job_follows_items(&self) -> bool {
        self.job.state == self.job_of_items()
    }
}

/// How far the handler of one leased item has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Fresh,
    /// The item has lost too many workers: it is marked dead and not handled.
    GivingUp,
    /// The other side (or the database) has it.
    Accepted,
    /// The other side said no, for good.
    Refused,
    /// Nothing happened; worth another attempt.
    Failed,
    /// A request without an answer, or the answer "I already know this key".
    Unclear,
    /// Broken alternative: the siblings were counted before the settle, all finished or not.
    Counted(bool),
}

/// A lease as its worker remembers it, rightly or wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub fence: Token,
    pub step: Step,
    /// *Ghost:* which claim this is.
    pub claim: Token,
    /// *Ghost:* nothing has ended the lease: no expiry, no operator, no crash that lost the claim.
    pub live: bool,
}

/// What somebody still owes the parent after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    Nothing,
    Recount,
    /// The parent is locked and the items are counted: what was seen, and what it should be.
    Counted {
        seen: JobState,
        found: JobState,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker<const N: usize> {
    pub held: [Option<Held>; N],
    pub duty: Duty,
}

impl<const N: usize> Worker<N> {
    pub const IDLE: Self = Worker {
        held: [None; N],
        duty: Duty::Nothing,
    };
}

/// The other side of one item: a service that is called, or a broker that carries messages.
/// It is another machine, so nothing here is undone by a crash of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party {
    /// The answer that it gave to the item's idempotency key, and will give again.
    pub answer: Option<Answer>,
    /// How often it did what it was asked.
    pub effects: u8,
    /// Copies of the message that it may still deliver.
    pub copies: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
}

/// One moment of the whole system: `W` workers, `N` items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct World<const W: usize, const N: usize> {
    /// What every transaction sees.
    pub now: Database<N>,
    /// What a crash of the server leaves: the log up to its last flush.
    pub durable: Database<N>,
    /// Interchangeable, so kept in order: worlds that differ in names alone are one.
    pub workers: [Worker<N>; W],
    pub parties: [Party; N],
    /// Operators and the sweep share one actor.
    pub operator: Duty,
    pub redrives_left: u8,
    /// *Ghost:* the end of the item that somebody may have been told.
    pub told: [Option<State>; N],
    /// *Ghost:* outcomes that handlers reported and that were committed.
    pub handled: [u8; N],
    /// *Ghost:* a lease changed a row that was not its own.
    pub trespassed: bool,
    /// *Ghost:* the worker that owed the parent a recount died first.
    pub recount_lost: bool,
}

impl<const W: usize, const N: usize> World<W, N> {
    /// A durable commit: flushes its own record and everything before it.
    pub fn commit(&mut self) {
        self.durable = self.now;
    }

    /// A random token: equal to none that anybody can still show. Names that nobody remembers may
    /// be given again, for nothing can tell them from new ones; that keeps the model finite.
    pub fn new_token(&self, item: usize) -> Token {
        let mut token = NOBODY + 1;
        while self.remembers(item, token) {
            token += 1;
        }
        token
    }

    fn remembers(&self, item: usize, token: Token) -> bool {
        let holds = |worker: &Worker<N>| worker.held[item].is_some_and(|held| held.claim == token);
        self.now.rows[item].claim == token
            || self.durable.rows[item].claim == token
            || self.workers.iter().any(holds)
    }

    /// Puts the interchangeable workers into one order.
    pub fn forget_names(&mut self) {
        for last in (1..W).rev() {
            for w in 0..last {
                if self.workers[w].packed() > self.workers[w + 1].packed() {
                    self.workers.swap(w, w + 1);
                }
            }
        }
    }

    /// Every lease on this item has ended, as far as its holders ought to know.
    pub fn end_leases(&mut self, item: usize) {
        for worker in &mut self.workers {
            if let Some(held) = &mut worker.held[item] {
                held.live = false;
            }
        }
    }
}
