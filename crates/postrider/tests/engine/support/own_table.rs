//! A table with names of its own: finished rows stay.

use postrider::lease::{Columns, Finish, States, WorkTable};
use sqlx::{Executor, PgPool};

pub static PARCEL: WorkTable = WORDS;

/// The same table, whose finished rows move to a history.
pub static MOVING: WorkTable = WorkTable {
    finish: Finish::Move {
        history: "shop.parcel_history",
        columns: "parcel_id, weight, tries",
    },
    ..WORDS
};

const WORDS: WorkTable = WorkTable {
    name: "shop.parcel",
    columns: Columns {
        id: "parcel_id",
        state: "status",
        attempts: "tries",
        due: "next_try_at",
        lease_until: "locked_until",
        fence: "lock_token",
        owner: "locked_by",
        losses: "crashes",
        finished: "closed_at",
        parked: None,
        error_code: "error_code",
        error_category: None,
        error_message: "error_text",
        cause: None,
    },
    states: States {
        ready: "PENDING",
        leased: "RUNNING",
        waiting: "RETRY_WAIT",
        done: "SUCCEEDED",
        dead: "DLQ",
        cancelled: Some("CANCELLED"),
        archived: Some("ARCHIVED"),
    },
    state_type: "text",
    kind: None,
    payload: "json_build_object('weight', t.weight)",
    headers: None,
    trace: None,
    ordering: None,
    finish: Finish::Keep,
    max_losses: 3,
};

pub async fn create(pool: &PgPool) {
    pool.execute(
        "create schema shop;
         create table shop.parcel (
             parcel_id    bigint generated always as identity primary key,
             weight       integer not null,
             status       text not null default 'PENDING',
             tries        integer not null default 0,
             next_try_at  timestamptz not null default now(),
             locked_until timestamptz,
             lock_token   bigint,
             locked_by    text,
             crashes      integer not null default 0,
             closed_at    timestamptz,
             error_code   text,
             error_text   text
         ) with (fillfactor = 45);
         create index on shop.parcel (next_try_at, parcel_id) where closed_at is null;
         create table shop.parcel_history (
             parcel_id bigint not null,
             weight    integer not null,
             tries     integer not null,
             closed_at timestamptz not null default now()
         ) partition by range (closed_at);
         create table shop.parcel_history_old partition of shop.parcel_history for values from (minvalue) to ('2026-01-01');
         create table shop.parcel_history_new partition of shop.parcel_history for values from ('2026-01-01') to (maxvalue)",
    )
    .await
    .unwrap();
}
