//! Nine states, 81 pairs: type and database agree on which transitions are allowed.

use postrider_protocols::model::Status;
use uuid::Uuid;

use crate::support::Fixture;

/// The state diagram of the specification.
const ALLOWED: [(&str, &str); 17] = [
    ("uploaded", "extracting"),
    ("extracting", "grounding"),
    ("extracting", "extraction_failed"),
    ("extracting", "dead_letter"),
    ("extraction_failed", "extracting"),
    ("extraction_failed", "uploaded"),
    ("extraction_failed", "dead_letter"),
    ("grounding", "pending_review"),
    ("grounding", "grounding_failed"),
    ("grounding", "dead_letter"),
    ("grounding_failed", "grounding"),
    ("grounding_failed", "uploaded"),
    ("grounding_failed", "dead_letter"),
    ("pending_review", "complete"),
    ("pending_review", "uploaded"),
    ("dead_letter", "uploaded"),
    ("dead_letter", "archived"),
];

fn pairs() -> impl Iterator<Item = (Status, Status)> {
    Status::ALL
        .into_iter()
        .flat_map(|from| Status::ALL.into_iter().map(move |to| (from, to)))
}

#[test]
fn type_allows_exactly_the_transitions_of_the_state_diagram() {
    assert_eq!(pairs().count(), 81);
    for (from, to) in pairs() {
        let expected = ALLOWED.contains(&(from.as_str(), to.as_str()));
        match from.transition_to(to) {
            Ok(transition) => {
                assert!(expected, "{from} to {to} must be rejected");
                assert_eq!((transition.from(), transition.to()), (from, to));
            }
            Err(error) => {
                assert!(!expected, "{from} to {to} must be allowed");
                assert!(error.to_string().contains(to.as_str()));
            }
        }
    }
}

#[test]
fn status_names_round_trip_through_json() {
    for status in Status::ALL {
        let json = serde_json::to_value(status).unwrap();
        assert_eq!(json, status.as_str());
        assert_eq!(serde_json::from_value::<Status>(json).unwrap(), status);
    }
}

#[tokio::test]
async fn database_rejects_every_transition_outside_the_state_diagram() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.pool.acquire().await.unwrap();
    for (from, to) in pairs().filter(|(from, to)| from != to) {
        let id = Uuid::now_v7();
        // The other columns satisfy the constraints of both states.
        let reason = |status: Status| {
            let healthy = ["uploaded", "pending_review", "complete"].contains(&status.as_str());
            (!healthy).then_some("why")
        };
        sqlx::query(
            "insert into protocols.protocol (id, title, document_key, media_type, status, error_reason, metadata, criteria)
             values ($1, 't', 'k', 'text/plain', $2, $3, '{\"error\": {}}', '[]')",
        )
        .bind(id)
        .bind(from)
        .bind(reason(from))
        .execute(&mut *connection)
        .await
        .unwrap();
        let moved = sqlx::query(
            "update protocols.protocol set status = $2, error_reason = $3 where id = $1",
        )
        .bind(id)
        .bind(to)
        .bind(reason(to))
        .execute(&mut *connection)
        .await;
        let allowed = from.transition_to(to).is_ok();
        assert_eq!(moved.is_ok(), allowed, "{from} to {to}: {:?}", moved.err());
        if let Err(sqlx::Error::Database(error)) = moved {
            assert_eq!(
                error.constraint(),
                Some("protocol_transition"),
                "{from} to {to}"
            );
        }
    }
}

#[tokio::test]
async fn database_rejects_every_invalid_row() {
    let fixture = Fixture::new().await;
    fixture.upload_text("text").await;
    for statement in [
        "insert into protocols.protocol (id, title, document_key, media_type, status) values (gen_random_uuid(), 't', 'k', 'text/plain', 'done')",
        "insert into protocols.protocol (id, title, document_key, media_type, status) values (gen_random_uuid(), 't', 'k', 'text/plain', 'dead_letter')",
        "insert into protocols.protocol (id, title, document_key, media_type, status) values (gen_random_uuid(), 't', 'k', 'text/plain', 'pending_review')",
        "insert into protocols.protocol (id, title, document_key, media_type, error_reason) values (gen_random_uuid(), 't', 'k', 'text/plain', 'why')",
        "insert into protocols.protocol (id, title, document_key, media_type) values (gen_random_uuid(), 't', 'k', 'image/png')",
        "insert into protocols.protocol (id, title, document_key, media_type) values (gen_random_uuid(), '', 'k', 'text/plain')",
        "update protocols.outbox set status = 'processing'",
        "update protocols.outbox set status = 'published'",
        "update protocols.outbox set status = 'dead_letter', finished_at = now()",
        "update protocols.outbox set retry_count = 1",
        "update protocols.outbox set event_type = 'ELSE'",
        "update protocols.outbox set try = 0",
    ] {
        let error = sqlx::query(statement)
            .execute(&fixture.pool)
            .await
            .expect_err(statement);
        let code = error
            .as_database_error()
            .unwrap()
            .code()
            .unwrap()
            .into_owned();
        assert_eq!(code, "23514", "{statement}: {error}");
    }
}
