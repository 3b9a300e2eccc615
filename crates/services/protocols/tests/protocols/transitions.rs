//! Nine states, 81 pairs: each is allowed or refused, by the type and by the database alike.

use postrider_protocols::model::Status;
use uuid::Uuid;

use crate::support::House;

/// The table as the contract has it.
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
fn every_one_of_the_81_pairs_is_allowed_or_refused_as_the_table_says() {
    assert_eq!(pairs().count(), 81);
    for (from, to) in pairs() {
        let expected = ALLOWED.contains(&(from.as_str(), to.as_str()));
        match from.to(to) {
            Ok(step) => {
                assert!(expected, "{from} to {to} must be refused");
                assert_eq!((step.from(), step.to()), (from, to));
            }
            Err(refused) => {
                assert!(!expected, "{from} to {to} must be allowed");
                assert!(refused.to_string().contains(to.as_str()));
            }
        }
    }
}

#[test]
fn the_words_are_those_of_the_contract_and_read_back() {
    for status in Status::ALL {
        let json = serde_json::to_value(status).unwrap();
        assert_eq!(json, status.as_str());
        assert_eq!(serde_json::from_value::<Status>(json).unwrap(), status);
    }
}

#[tokio::test]
async fn the_database_refuses_every_pair_that_the_table_refuses() {
    let house = House::new().await;
    let mut connection = house.pool.acquire().await.unwrap();
    for (from, to) in pairs().filter(|(from, to)| from != to) {
        let id = Uuid::now_v7();
        // The columns are such that no other constraint stands in the way of either state.
        let reason = |status: Status| {
            let calm = ["uploaded", "pending_review", "complete"].contains(&status.as_str());
            (!calm).then_some("why")
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
        let allowed = from.to(to).is_ok();
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
async fn the_database_refuses_every_state_that_must_not_exist() {
    let house = House::new().await;
    house.upload_text("text").await;
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
            .execute(&house.pool)
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
