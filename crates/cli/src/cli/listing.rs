//! Listings, the same for every service: paging options and how a page is printed.

use reqwest::Method;
use serde_json::Value;

use super::{Output, client::Client};
use crate::exit::Failure;

/// Which page of a list.
#[derive(Debug, clap::Args)]
pub(super) struct Paging {
    /// Maximum number of items.
    #[arg(long, default_value = "50")]
    limit: String,
    /// Start of the page: `next_cursor` of the previous page.
    #[arg(long, allow_hyphen_values = true)]
    cursor: Option<String>,
}

impl Paging {
    /// Prints a page of `path`, a line per item; `things` names them if there are none.
    pub async fn list(
        &self,
        client: &Client,
        (things, path): (&str, &[&str]),
        filters: &[(&str, Option<&str>)],
        output: &Output,
        line: impl Fn(&Value) -> String,
    ) -> Result<(), Failure> {
        let page = self.fetch(client, path, filters).await?;
        output.answer(&page, || {
            let lines = lines(&page, line);
            if lines.is_empty() {
                return format!("no {things}");
            }
            lines.join("\n")
        })
    }

    /// Fetches a page of `path` with the filters that are set.
    pub async fn fetch(
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

/// A page as text: a line per item, and the cursor of the next page.
pub(super) fn lines(page: &Value, line: impl Fn(&Value) -> String) -> Vec<String> {
    let items = page["items"].as_array().map_or(&[][..], Vec::as_slice);
    let mut lines: Vec<String> = items.iter().map(line).collect();
    if let Some(cursor) = page["next_cursor"].as_str() {
        lines.push(format!("more: --cursor {cursor}"));
    }
    lines
}
