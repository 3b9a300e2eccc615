//! `/dead`: what was given up, by cause and one by one, and the way to redrive or archive it.

mod act;
mod letter;
mod view;

use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};
use postrider::dead_letter;
use postrider_web::{Cursor, Limit, Problem, Query, list_of};
use serde::Deserialize;

pub(super) use act::{act, confirm, stop};
pub(super) use letter::page as letter;
use view::{Group, Letter, Operation};

use super::{
    Console, format,
    page::{Frame, answer_with},
    user::User,
};
use crate::operate::{dead::Refused, filter::WORDS};

/// The name of the listing in its cursors.
const LIST: &str = "console.dead";

/// So many of the latest orders are shown, and those that run.
const OPERATIONS: i64 = 5;

/// More causes than this nobody reads at once; a filter shows the others.
const GROUPS: usize = 20;

#[derive(Template)]
#[template(path = "console/dead.html")]
struct Page {
    frame: Frame,
    filter: String,
    filtered: bool,
    refused: Option<String>,
    words: &'static [(&'static str, &'static str)],
    count: String,
    operations: Vec<Operation>,
    running: bool,
    groups: Vec<Group>,
    letters: Vec<Letter>,
    first: bool,
    newest: String,
    more: Option<String>,
}

/// Which letters are wanted.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    filter: String,
    cursor: Option<Cursor>,
}

/// `/dead`
pub(super) async fn page(
    State(console): State<Console>,
    visitor: User,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Problem> {
    let operate = &console.operate;
    let limit = Limit::new(50).unwrap_or_default();
    let filter = wanted.filter.trim();
    let list = list_of(LIST, &filter)?;
    let after: Option<dead_letter::Cursor> = wanted
        .cursor
        .as_ref()
        .map(|cursor| cursor.decode(&list))
        .transpose()?;
    let rows = u32::try_from(limit.to_select()).unwrap_or(u32::MAX);
    // A filter that can't be read is told where it was written.
    let (found, refused) = match operate.dead(filter, after.as_ref(), rows).await {
        Ok(found) => (found, None),
        Err(Refused::Filter(unreadable)) => (Vec::new(), Some(unreadable.to_string())),
        Err(other) => return Err(other.into()),
    };
    let (groups, count) = if refused.is_some() {
        (Vec::new(), "None".to_owned())
    } else {
        let groups = operate.dead_groups(filter).await?;
        let preview = operate.preview(filter).await?;
        let more = if preview.more { "+" } else { "" };
        (groups, format!("{}{more}", format::count(preview.matching)))
    };
    let found = postrider_web::Page::cut(
        found,
        limit,
        &list,
        crate::operate::dead::LetterView::cursor,
    )?;
    let newest = format!("/dead?filter={}", format::in_query(filter));
    let more = found
        .next_cursor
        .as_ref()
        .map(|cursor| format!("{newest}&cursor={}", format::in_query(cursor)));
    let operations = operate.operations(None, OPERATIONS).await?;
    let status = if refused.is_some() {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    let page = Page {
        frame: Frame::new("Dead letters", "dead", &visitor),
        filtered: !filter.is_empty(),
        filter: filter.to_owned(),
        refused,
        words: &WORDS,
        count,
        running: operations
            .iter()
            .any(|operation| operation.state == "running"),
        operations: operations.into_iter().map(Operation::from).collect(),
        groups: groups.into_iter().take(GROUPS).map(Group::from).collect(),
        letters: found.items.into_iter().map(Letter::from).collect(),
        first: wanted.cursor.is_none(),
        newest,
        more,
    };
    answer_with(status, &page)
}
