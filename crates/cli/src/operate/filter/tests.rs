use std::time::Duration;

use proptest::prelude::*;
use time::OffsetDateTime;

use super::{Filter, When};

fn parse(line: &str) -> Filter {
    Filter::parse(line).unwrap()
}

fn error(line: &str) -> String {
    Filter::parse(line).expect_err(line).to_string()
}

#[test]
fn each_word_has_its_meaning() {
    let filter = parse(
        r#"service:payments kind:wallet code:503 since:2h until:2026-01-31T12:00:00Z "no \"route\" to" host"#,
    );
    assert_eq!(filter.service.as_deref(), Some("payments"));
    assert_eq!(filter.kind.as_deref(), Some("wallet"));
    assert_eq!(filter.code.as_deref(), Some("503"));
    assert_eq!(filter.since, Some(When::Ago(Duration::from_secs(7_200))));
    assert!(matches!(filter.until, Some(When::At(_))));
    assert_eq!(filter.text.as_deref(), Some("no \"route\" to host"));
    assert_eq!(parse("table:orders.outbox_orders id:3,1,2").ids, [3, 1, 2]);
    assert_eq!(
        parse(r#"cause:"503: try <n>""#).cause.as_deref(),
        Some("503: try <n>")
    );
    assert!(parse("  ").matches_everything());
    assert_eq!(
        parse("10.0.0.1:443").text.as_deref(),
        Some("10.0.0.1:443"),
        "a name has letters"
    );
}

#[test]
fn an_error_names_the_invalid_word_and_the_valid_ones() {
    assert!(
        error("sevice:orders").contains("sevice:")
            && error("sevice:orders").contains("service, table")
    );
    assert!(error("service:order").contains("messages, orders, payments"));
    assert!(error("table:orders.outbox").contains("orders.outbox_orders"));
    assert!(error("since:yesterday").contains("since:yesterday"));
    assert!(error("id:1,x table:orders.outbox_orders").contains("id:1,x"));
    assert!(error("id:1").contains("table:"));
    assert!(error("code:").contains("no value"));
    assert!(error("code:A code:B").contains("twice"));
    assert!(error("\"open").contains("closing quote"));
    assert!(error("\"\"").contains("empty"));
}

#[test]
fn a_service_selects_its_tables_and_durations_count_back_from_now() {
    let now = OffsetDateTime::from_unix_timestamp(1_000_000).unwrap();
    let resolved = parse("service:payments since:1m").resolve(now);
    assert_eq!(
        resolved.work_tables.unwrap(),
        ["payments.outbox", "wallet.outbox"]
    );
    assert_eq!(resolved.since.unwrap().unix_timestamp(), 1_000_000 - 60);
    let nowhere = parse("service:orders table:payments.outbox").resolve(now);
    assert_eq!(
        nowhere.work_tables.unwrap(),
        Vec::<String>::new(),
        "both can't fit"
    );
    assert!(parse("").resolve(now).work_tables.is_none());
}

proptest! {
    #[test]
    fn any_line_parses_or_is_an_error(line in "\\PC{0,80}") {
        if let Ok(filter) = Filter::parse(&line) {
            prop_assert_eq!(Filter::parse(&filter.to_string()).unwrap(), filter);
        }
    }

    #[test]
    fn a_printed_filter_parses_to_the_same_filter(
        service in proptest::option::of(proptest::sample::select(vec!["orders", "exports", "messages"])),
        kind in proptest::option::of("[^\\p{C}]{1,20}"),
        cause in proptest::option::of("[^\\p{C}]{1,40}"),
        text in proptest::option::of("[^\\p{C}]{1,40}"),
        ago in proptest::option::of(0..10_000_000_000_u64),
        ids in proptest::collection::vec(any::<i64>(), 0..5),
    ) {
        let filter = Filter {
            service: service.map(str::to_owned),
            table: (!ids.is_empty()).then(|| "postrider.outbox".to_owned()),
            kind,
            cause,
            text,
            since: ago.map(|ago| When::Ago(Duration::from_millis(ago))),
            ids,
            ..Filter::default()
        };
        let line = filter.to_string();
        prop_assert_eq!(Filter::parse(&line).unwrap(), filter, "{}", line);
    }
}
