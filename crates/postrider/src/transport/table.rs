//! The work table of the Postgres transport, described here because the schema is the library's: dead letters, doctor
//! and operators see deliveries like any other work.

use crate::lease::{Columns, Finish, OrderingKeys, States, WorkTable};

/// `postrider.delivery`: one row per message and group. The kind is the group, the payload an envelope around the
/// message.
pub static DELIVERIES: WorkTable = WorkTable {
    name: "postrider.delivery",
    columns: Columns::STANDARD,
    states: States::STANDARD,
    state_type: "postrider.work_state",
    kind: Some("consumer_group"),
    // A message that is no longer in the log must not break the claim of its neighbours: null is no envelope.
    payload: "coalesce((
        select json_build_object('id', m.id, 'topic', m.topic, 'key', m.key, 'trace', m.trace,
                                 'headers', m.headers, 'payload', m.payload)
        from postrider.message m where m.id = t.message_id and m.segment = t.segment), 'null'::json)",
    headers: None,
    trace: None,
    ordering: Some(OrderingKeys {
        column: "ordering_key",
        promote: "postrider.promote_deliveries",
        stranded: "postrider.stranded_deliveries",
    }),
    finish: Finish::Delete,
    max_losses: 10,
};
