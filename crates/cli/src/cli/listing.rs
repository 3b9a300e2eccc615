//! Lists, the same for every service: what to ask for, where to go on, and how a page is shown.

use reqwest::Method;
use serde_json::Value;

use super::{Output, client::Client};
use crate::exit::Failure;

/// Which page of a list.
#[derive(Debug, clap::Args)]
pub(super) struct Paging {
    /// How many.
    #[arg(long, default_value = "50")]
    limit: String,
    /// Where to go on: `next_cursor` of the list before.
    #[arg(long, allow_hyphen_values = true)]
    cursor: Option<String>,
}

impl Paging {
    /// Asks for the page of the `things` at `path` that fit the filters that are set; shows each as `line` says.
    pub async fn list(
        &self,
        client: &Client,
        (things, path): (&str, &[&str]),
        filters: &[(&str, Option<&str>)],
        output: &Output,
        line: impl Fn(&Value) -> String,
    ) -> Result<(), Failure> {
        let page = self.ask(client, path, filters).await?;
        output.answer(&page, || {
            let lines = lines(&page, line);
            if lines.is_empty() {
                return format!("no {things}");
            }
            lines.join("\n")
        })
    }

    /// The page of what is at `path` and fits the filters that are set.
    pub async fn ask(
        &self,
        client: &Client,
        path: &[&str],
        filters: &[(&str, Option<&str>)],
    ) -> Result<Value, Failure> {
        let own = [
            ("cursor", self.cursor.as_deref()),
            ("limit", Some(self.limit.as_str())),
        ];
        let query: Vec<(&str, &str)> = filters
            .iter()
            .copied()
            .chain(own)
            .filter_map(|(name, value)| value.map(|value| (name, value)))
            .collect();
        Ok(client.call(Method::GET, path, &query, None).await?.1)
    }
}

/// A page as text: a line for each item, and where it goes on.
pub(super) fn lines(page: &Value, line: impl Fn(&Value) -> String) -> Vec<String> {
    let items = page["items"].as_array().map_or(&[][..], Vec::as_slice);
    let mut lines: Vec<String> = items.iter().map(line).collect();
    if let Some(cursor) = page["next_cursor"].as_str() {
        lines.push(format!("more: --cursor {cursor}"));
    }
    lines
}
