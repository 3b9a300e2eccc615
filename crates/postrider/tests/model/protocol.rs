//! Every step that anybody can take, in every order: the part that the checker drives.

use stateright::{Model, Property};

use crate::effect::{Receipt, Reply};
use crate::guards::Guards;
use crate::invariants::Invariant;
use crate::parent::Actor;
use crate::scenarios::Scenario;
use crate::settle::Verdict;
use crate::state::{
    Database, Duty, Held, Job, JobState, NOBODY, Party, Row, State, Step, Worker, World,
};
use crate::witnesses::Witness;

/// What the checker looks for.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// A breach of any invariant.
    AnyBreach,
    /// A breach of this invariant.
    Breach(Invariant),
    /// A world that shows this.
    Sight(Witness),
}

/// The protocol of `W` workers and `N` items.
#[derive(Clone, Copy, Debug)]
pub struct Protocol<const W: usize, const N: usize> {
    pub scenario: Scenario<N>,
    pub guards: Guards,
    pub goal: Goal,
}

/// One atomic step: a transaction, a request, a tick of the clock or a crash. A number is a worker
/// or an item, in that order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Accept(usize),
    Claim(usize, usize),
    ClaimBatch(usize),
    Renew(usize, usize),
    Act(usize, usize, Reply),
    LookUp(usize, usize),
    CountBeforeSettle(usize, usize),
    Settle(usize, usize, Verdict, Commit),
    Deliver(usize, Receipt),
    Expire(usize),
    ComeDue(usize),
    Cancel(usize),
    Redrive(usize),
    Sweep,
    Recount(Actor),
    Conclude(Actor),
    KillWorker(usize),
    Flush,
    KillServer,
}

/// Whether the answer to a COMMIT arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    Heard,
    Unheard,
}

impl<const W: usize, const N: usize> Protocol<W, N> {
    fn actions_of_worker(&self, world: &World<W, N>, w: usize, actions: &mut Vec<Action>) {
        let worker = &world.workers[w];
        let mut batch = 0;
        for i in 0..N {
            if let Some(held) = worker.held[i] {
                self.actions_of_handler(world, w, i, held, actions);
            } else if self.may_claim(world, w, i) {
                actions.push(Action::Claim(w, i));
                batch += usize::from(self.may_claim_in_batch(world, w, i));
            }
        }
        if batch > 1 {
            actions.push(Action::ClaimBatch(w));
        }
        self.actions_of_duty(world, Actor::Worker(w), actions);
        let deadly = |held: Held| held.step != Step::GivingUp;
        let poisoned = |i: usize| worker.held[i].is_some_and(deadly);
        let doomed = self.scenario.chaos || self.scenario.poison.is_some_and(poisoned);
        if *worker != Worker::IDLE && doomed {
            actions.push(Action::KillWorker(w));
        }
    }

    fn actions_of_handler(
        &self,
        world: &World<W, N>,
        w: usize,
        i: usize,
        held: Held,
        actions: &mut Vec<Action>,
    ) {
        if self.renewable(world, w, i) {
            actions.push(Action::Renew(w, i));
        }
        if held.step == Step::Fresh {
            for &reply in self.replies(world, i) {
                actions.push(Action::Act(w, i, reply));
            }
            if !self.guards.recount_after_commit {
                actions.push(Action::CountBeforeSettle(w, i));
            }
        }
        if held.step == Step::Unclear && self.guards.look_up_unclear {
            actions.push(Action::LookUp(w, i));
        }
        // One finalizer transaction per worker at a time: it settles again when that has ended.
        if matches!(world.workers[w].duty, Duty::Counted { .. }) {
            return;
        }
        for &verdict in self.verdicts(i, held.step) {
            actions.push(Action::Settle(w, i, verdict, Commit::Heard));
            if !self.may_settle(&world.now.rows[i], &held) {
                break; // a lost lease gives every verdict the same answer
            }
            if self.scenario.chaos && matches!(verdict, Verdict::Done | Verdict::Retry) {
                actions.push(Action::Settle(w, i, verdict, Commit::Unheard));
            }
        }
    }

    fn actions_of_duty(&self, world: &World<W, N>, actor: Actor, actions: &mut Vec<Action>) {
        match self.duty(world, actor) {
            Duty::Nothing => {}
            Duty::Recount if self.may_recount(world) => actions.push(Action::Recount(actor)),
            Duty::Recount => {}
            Duty::Counted { .. } => actions.push(Action::Conclude(actor)),
        }
    }

    fn actions_on_item(&self, world: &World<W, N>, i: usize, actions: &mut Vec<Action>) {
        let row = &world.now.rows[i];
        let holds = |worker: &Worker<N>| worker.held[i].is_some_and(|held| held.live);
        match row.state {
            State::Absent if !row.accepted => actions.push(Action::Accept(i)),
            State::Waiting => actions.push(Action::ComeDue(i)),
            State::Leased if !row.expired => {
                if self.scenario.chaos || !world.workers.iter().any(holds) {
                    actions.push(Action::Expire(i));
                }
            }
            State::Absent | State::Ready | State::Leased | State::Done | State::Dead(_) => {}
        }
        if world.parties[i].copies > 0 {
            for &receipt in self.receipts() {
                actions.push(Action::Deliver(i, receipt));
            }
        }
        if world.operator != Duty::Nothing {
            return;
        }
        if self.scenario.cancels && row.state != State::Absent && !row.state.is_terminal() {
            actions.push(Action::Cancel(i));
        }
        if world.redrives_left > 0 && matches!(row.state, State::Dead(_)) {
            actions.push(Action::Redrive(i));
        }
    }

    fn take(&self, world: &mut World<W, N>, action: Action) {
        match action {
            Action::Accept(i) => self.accept(world, i),
            Action::Claim(w, i) => self.claim(world, w, i),
            Action::ClaimBatch(w) => self.claim_batch(world, w),
            Action::Renew(w, i) => self.renew(world, w, i),
            Action::Act(w, i, reply) => self.act(world, w, i, reply),
            Action::LookUp(w, i) => self.look_up(world, w, i),
            Action::CountBeforeSettle(w, i) => self.count_before_settle(world, w, i),
            Action::Settle(w, i, verdict, commit) => {
                self.settle(world, w, i, verdict, commit == Commit::Heard);
            }
            Action::Deliver(i, receipt) => self.deliver(world, i, receipt),
            Action::Expire(i) => self.expire(world, i),
            Action::ComeDue(i) => self.come_due(world, i),
            Action::Cancel(i) => self.cancel(world, i),
            Action::Redrive(i) => self.redrive(world, i),
            Action::Sweep => world.operator = Duty::Recount,
            Action::Recount(actor) => self.recount(world, actor),
            Action::Conclude(actor) => self.conclude(world, actor),
            Action::KillWorker(w) => self.kill_worker(world, w),
            Action::Flush => world.commit(), // the log writer's turn
            Action::KillServer => self.kill_server(world),
        }
    }
}

impl<const W: usize, const N: usize> Model for Protocol<W, N> {
    type State = World<W, N>;
    type Action = Action;

    fn init_states(&self) -> Vec<World<W, N>> {
        let row = Row {
            accepted: self.scenario.enqueued,
            state: if self.scenario.enqueued {
                State::Ready
            } else {
                State::Absent
            },
            attempts: 0,
            losses: 0,
            due: true,
            expired: false,
            fence: NOBODY,
            claim: NOBODY,
            inbox: false,
            effects: 0,
        };
        let database = Database {
            rows: [row; N],
            job: Job {
                state: JobState::Open,
                summaries: 0,
            },
        };
        vec![World {
            now: database,
            durable: database,
            workers: [Worker::IDLE; W],
            parties: [Party {
                answer: None,
                effects: 0,
                copies: 0,
            }; N],
            operator: Duty::Nothing,
            redrives_left: self.scenario.redrives,
            told: [None; N],
            handled: [0; N],
            trespassed: false,
            recount_lost: false,
        }]
    }

    fn actions(&self, world: &World<W, N>, actions: &mut Vec<Action>) {
        for w in 0..W {
            // Workers are in order, and what two equal ones do is the same.
            if w == 0 || world.workers[w] != world.workers[w - 1] {
                self.actions_of_worker(world, w, actions);
            }
        }
        for i in 0..N {
            self.actions_on_item(world, i, actions);
        }
        self.actions_of_duty(world, Actor::Operator, actions);
        if world.operator == Duty::Nothing && self.sweep_finds(world) {
            actions.push(Action::Sweep);
        }
        if self.scenario.chaos && world.now != world.durable {
            actions.push(Action::Flush);
            actions.push(Action::KillServer);
        }
    }

    fn next_state(&self, last: &World<W, N>, action: Action) -> Option<World<W, N>> {
        let mut next = *last;
        self.take(&mut next, action);
        next.forget_names();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(
            "goal",
            |protocol: &Self, world| match protocol.goal {
                Goal::AnyBreach => protocol.keeps_promises(world),
                Goal::Breach(invariant) => protocol.holds(invariant, world),
                Goal::Sight(witness) => !protocol.shows(witness, world),
            },
        )]
    }
}
