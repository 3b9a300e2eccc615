//! The console in a real browser.

mod access;
mod actions;
mod dead;
mod hostile;
mod pages;
mod pictures;

use std::time::Duration;

use postrider_testkit::{TestDb, browser, browser::Page, within};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Serving, data_dir};

/// Exports read from a table of the test's own that is empty at first, so every input becomes a dead letter.
const SOURCE: &str = r#"exports.source.query="select * from public.prices where index_key = $1 and $2 > 0 and $3 <> ''""#;

/// Long enough for a debug build on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A running program, a browser's page, and the database behind both.
struct Fixture {
    db: TestDb,
    page: Page,
    serving: Serving,
    _dir: TempDir,
}

impl Fixture {
    /// Starts the program with additional arguments. `None` if no browser is installed.
    async fn with(more: &[&str]) -> Option<Self> {
        let page = browser::page().await?;
        let db = TestDb::new().await;
        let source = "create table public.prices (index_key text, price numeric)";
        sqlx::query(source).execute(&db.pool()).await.unwrap();
        let dir = data_dir();
        let url = db.url();
        let own = ["--database-url", &url, "--set", SOURCE];
        let serving = Serving::on(dir.path(), &[&own, more].concat()).await;
        Some(Self {
            db,
            page,
            serving,
            _dir: dir,
        })
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.serving.base())
    }

    async fn open(&self, path: &str) {
        self.page.open(&self.url(path)).await;
    }

    /// Reloads a page until it contains these words; pages may be a few seconds old.
    async fn open_until(&self, path: &str, words: &[&str]) {
        within(TIMEOUT, path, async || {
            self.open(path).await;
            let text = self.page.text().await;
            match words.iter().find(|word| !text.contains(**word)) {
                None => Ok(()),
                Some(word) => Err((*word, text)),
            }
        })
        .await;
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let request = self.serving.post(path).json(body);
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Creates an export job whose only input becomes a dead letter; returns the job's id.
    async fn dead_letter(&self, index: &str) -> String {
        let input =
            json!({ "indexKey": index, "effectiveDate": 20_240_202, "asofindicator": "CLS" });
        let job = self.post("/jobs", &json!({ "inputs": [input] })).await;
        let id = job["jobId"].as_str().unwrap().to_owned();
        self.until_job(&id, "FAILED").await;
        id
    }

    async fn until_job(&self, id: &str, wanted: &str) {
        let path = format!("/jobs/{id}");
        within(TIMEOUT, wanted, async || {
            let job = self.serving.json(&path).await;
            if job["status"] == wanted {
                Ok(())
            } else {
                Err(job)
            }
        })
        .await;
    }

    fn assert_no_errors(&self) {
        let troubles = self.page.errors();
        assert!(troubles.is_empty(), "{troubles:#?}");
    }

    /// Nothing is wider than the window.
    async fn assert_fits(&self, path: &str) {
        let wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        let wider = self.page.eval(wider).await;
        assert_eq!(wider, 0, "{path} scrolls sideways");
    }
}
