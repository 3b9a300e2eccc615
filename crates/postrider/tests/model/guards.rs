//! The guards of the protocol, each of which can be taken away.

use crate::invariants::Invariant;
use crate::scenarios::Place;

/// What keeps the promises. A model with every guard on has no counterexample; taking any single
/// one away breaks the invariant named in [`REMOVALS`].
#[derive(Clone, Copy, Debug)]
pub struct Guards {
    /// The item is enqueued in the transaction of the caller's own row.
    pub enqueue_in_callers_transaction: bool,
    /// A claim takes nothing before its due time.
    pub claim_only_due: bool,
    /// A claim takes nothing that a live lease holds.
    pub claim_only_unleased: bool,
    /// A claim takes what an expired lease holds.
    pub rescue_expired: bool,
    /// An item that has lost `max_losses` workers is marked dead and not handled again.
    pub losses_bounded: bool,
    /// No worker has two items at once that may have killed one.
    pub suspects_apart: bool,
    /// A settle names the fence of its claim.
    pub fence_at_settle: bool,
    /// The fence is random, and not the row's own counter.
    pub fence_random: bool,
    /// A settle changes only what is leased.
    pub terminal_is_terminal: bool,
    /// A settle is committed with `synchronous_commit = on`.
    pub settle_durable: bool,
    /// An effect inside the database commits with the settle.
    pub effect_with_settle: bool,
    /// A failure at the last attempt is the end.
    pub attempts_bounded: bool,
    /// A give-back and a snooze spend no attempt.
    pub give_back_free: bool,
    /// Every attempt shows the other side the same idempotency key.
    pub key_stable: bool,
    /// An unclear attempt is looked up before it is repeated or given up.
    pub look_up_unclear: bool,
    /// Published means that the broker has confirmed.
    pub publish_confirmed: bool,
    /// Consumer and message id are unique in the inbox.
    pub inbox_unique: bool,
    /// The inbox row commits with the effect.
    pub inbox_with_effect: bool,
    /// The broker is told only after a durable commit.
    pub inbox_durable: bool,
    /// The parent is judged after the item's commit, and not inside it.
    pub recount_after_commit: bool,
    /// The parent is locked while its items are counted.
    pub recount_under_lock: bool,
    /// A sweep looks for parents that do not follow their items.
    pub sweep: bool,
}

impl Guards {
    pub const ALL: Guards = Guards {
        enqueue_in_callers_transaction: true,
        claim_only_due: true,
        claim_only_unleased: true,
        rescue_expired: true,
        losses_bounded: true,
        suspects_apart: true,
        fence_at_settle: true,
        fence_random: true,
        terminal_is_terminal: true,
        settle_durable: true,
        effect_with_settle: true,
        attempts_bounded: true,
        give_back_free: true,
        key_stable: true,
        look_up_unclear: true,
        publish_confirmed: true,
        inbox_unique: true,
        inbox_with_effect: true,
        inbox_durable: true,
        recount_after_commit: true,
        recount_under_lock: true,
        sweep: true,
    };
}

/// A guard taken away, the invariant that breaks, and the place where it is seen to break.
pub struct Removal {
    pub guard: &'static str,
    pub remove: fn(&mut Guards),
    pub breaks: Invariant,
    pub place: Place,
}

macro_rules! removals {
    ($($guard:ident breaks $invariant:ident in $place:ident,)*) => {
        &[$(Removal {
            guard: stringify!($guard),
            remove: |guards| guards.$guard = false,
            breaks: Invariant::$invariant,
            place: Place::$place,
        }),*]
    };
}

pub const REMOVALS: &[Removal] = removals! {
    enqueue_in_callers_transaction breaks NothingLost in Messages,
    claim_only_due breaks NotBeforeDue in Leases,
    claim_only_unleased breaks OneOwner in Leases,
    rescue_expired breaks CrashesRecover in Leases,
    losses_bounded breaks LossesBounded in Poison,
    suspects_apart breaks NeighboursSpared in Poison,
    fence_at_settle breaks StaleChangesNothing in Leases,
    fence_random breaks StaleChangesNothing in Leases,
    terminal_is_terminal breaks TerminalStays in Leases,
    settle_durable breaks TerminalStays in Leases,
    effect_with_settle breaks OneEffect in Leases,
    attempts_bounded breaks AttemptsBounded in Leases,
    give_back_free breaks AttemptsEarned in Leases,
    key_stable breaks OneEffect in Calls,
    look_up_unclear breaks TrueOutcome in Calls,
    publish_confirmed breaks NothingLost in Messages,
    inbox_unique breaks OneEffect in Messages,
    inbox_with_effect breaks OneEffect in Messages,
    inbox_durable breaks NothingLost in Messages,
    recount_after_commit breaks ParentFollows in Family,
    recount_under_lock breaks OneSummary in Family,
    sweep breaks SweepRepairs in Family,
};
