//! The metrics page and the program agree.

use std::collections::BTreeMap;
use std::path::Path;

use postrider_testkit::eventually;

use crate::program::{Serving, data_dir};

/// Names and kinds in a scrape.
fn shown(scrape: &str) -> BTreeMap<String, String> {
    let types = scrape
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .filter_map(|line| line.split_once(' '))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect()
}

/// Names and kinds in a part of the page.
fn documented(page: &str) -> BTreeMap<String, String> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        (cells[1].trim_matches('`').to_owned(), cells[2].to_owned())
    })
    .collect()
}

async fn scrape(serving: &Serving) -> String {
    let answer = serving.get("/metrics").send().await.unwrap();
    answer.text().await.unwrap()
}

#[tokio::test]
async fn scrape_contains_exactly_the_documented_metrics_from_the_start() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &[]).await;
    let scrape_one = scrape(&serving).await;
    let shown = shown(&scrape_one);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (always, _) = page.split_once("## Not always there").unwrap();
    let (always, known) = (documented(always), documented(&page));
    let missing: Vec<_> = always
        .iter()
        .filter(|(name, kind)| shown.get(*name) != Some(*kind))
        .collect();
    let unknown: Vec<_> = shown
        .iter()
        .filter(|(name, _)| !known.contains_key(*name))
        .collect();
    assert!(
        missing.is_empty(),
        "not there, or of another kind: {missing:?}"
    );
    assert!(
        unknown.is_empty(),
        "not in docs/operations/metrics.md: {unknown:?}"
    );
    for line in [
        "outbox_enqueued_total{table=\"outbox_orders\"} 0",
        "evidence_permanent_failures_count{error_code=\"CORRUPTED_FILE\"} 0",
        "postrider_leases_lost_total{table=\"orders.outbox_orders\"} 0",
        "postrider_rescued_total{table=\"postrider.outbox\"} 0",
        "payments_pending 0",
        "exports_open_jobs 0",
    ] {
        assert!(scrape_one.contains(line), "{line} in\n{scrape_one}");
    }
    // Every table that workers work on has one, as the database sees it.
    eventually("every worker has sent a heartbeat", async || {
        let scrape = scrape(&serving).await;
        let idle: Vec<String> = scrape
            .lines()
            .filter(|line| line.starts_with("postrider_workers{") && line.ends_with(" 0"))
            .map(str::to_owned)
            .collect();
        if idle.iter().all(|line| line.contains("postrider.delivery")) {
            Ok(())
        } else {
            Err(idle)
        }
    })
    .await;
    assert!(serving.terminate().await.success());
}

#[tokio::test]
async fn api_process_shows_the_metrics_of_the_whole_fleet() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &["--roles", "api"]).await;
    let scrape = scrape(&serving).await;
    for name in [
        "postrider_queue_depth",
        "postrider_rescued_total",
        "evidence_n2_latency_seconds",
        "wallet_handled_total",
        "protocols_by_status",
        "outbox_age_seconds",
        "postrider_alerts_firing",
    ] {
        assert!(scrape.contains(&format!("# TYPE {name} ")), "{name}");
    }
    assert!(serving.terminate().await.success());
}
