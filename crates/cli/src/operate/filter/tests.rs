use std::time::Duration;

use proptest::prelude::*;
use time::OffsetDateTime;

use super::{Filter, When};

fn read(line: &str) -> Filter {
    Filter::parse(line).unwrap()
}

fn refused(line: &str) -> String {
    Filter::parse(line).expect_err(line).to_string()
}

#[test]
fn each_word_says_what_it_means() {
    let filter = read(
        r#"service:payments kind:wallet code:503 since:2h until:2026-01-31T12:00:00Z "no \"route\" to" host"#,
    );
    assert_eq!(filter.service.as_deref(), Some("payments"));
    assert_eq!(filter.kind.as_deref(), Some("wallet"));
    assert_eq!(filter.code.as_deref(), Some("503"));
    assert_eq!(filter.since, Some(When::Ago(Duration::from_secs(7_200))));
    assert!(matches!(filter.until, Some(When::At(_))));
    assert_eq!(filter.text.as_deref(), Some("no \"route\" to host"));
    assert_eq!(read("table:orders.outbox_orders id:3,1,2").ids, [3, 1, 2]);
    assert_eq!(
        read(r#"cause:"503: try <n>""#).cause.as_deref(),
        Some("503: try <n>")
    );
    assert!(read("  ").matches_everything());
    assert_eq!(
        read("10.0.0.1:443").text.as_deref(),
        Some("10.0.0.1:443"),
        "a name has letters"
    );
}

#[test]
fn what_can_not_be_read_is_named_with_what_is_known() {
    assert!(
        refused("sevice:orders").contains("sevice:")
            && refused("sevice:orders").contains("service, table")
    );
    assert!(refused("service:order").contains("messages, orders, payments"));
    assert!(refused("table:orders.outbox").contains("orders.outbox_orders"));
    assert!(refused("since:yesterday").contains("since:yesterday"));
    assert!(refused("id:1,x table:orders.outbox_orders").contains("id:1,x"));
    assert!(refused("id:1").contains("table:"));
    assert!(refused("code:").contains("no value"));
    assert!(refused("code:A code:B").contains("twice"));
    assert!(refused("\"open").contains("closing quote"));
    assert!(refused("\"\"").contains("empty"));
}

#[test]
fn a_service_means_its_tables_and_times_are_counted_back_from_now() {
    let now = OffsetDateTime::from_unix_timestamp(1_000_000).unwrap();
    let resolved = read("service:payments since:1m").resolve(now);
    assert_eq!(
        resolved.work_tables.unwrap(),
        ["payments.outbox", "wallet.outbox"]
    );
    assert_eq!(resolved.since.unwrap().unix_timestamp(), 1_000_000 - 60);
    let nowhere = read("service:orders table:payments.outbox").resolve(now);
    assert_eq!(
        nowhere.work_tables.unwrap(),
        Vec::<String>::new(),
        "both can't fit"
    );
    assert!(read("").resolve(now).work_tables.is_none());
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_or_refused(line in "\\PC{0,80}") {
        if let Ok(filter) = Filter::parse(&line) {
            prop_assert_eq!(Filter::parse(&filter.to_string()).unwrap(), filter);
        }
    }

    #[test]
    fn a_filter_reads_back_as_it_was_written(
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
