//! `/dead`: dead letters, by cause and one by one, and the actions on them.

mod item;
mod operation;
mod view;

use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};
use postrider::dead_letter;
use postrider_web::{Cursor, Limit, Problem, Query, list_id};
use serde::Deserialize;

pub(super) use item::page as item;
pub(super) use operation::{act, confirm, stop};
use view::{Group, Letter, Operation};

use super::{
    Console, format,
    page::{Frame, answer_with},
    user::User,
};
use crate::operate::{dead::OperateError, filter::WORDS};

/// The name of the listing in its cursors.
const LIST: &str = "console.dead";

/// Number of latest operations shown.
const MAX_OPERATIONS: i64 = 5;

/// Number of causes shown; a filter finds the others.
const MAX_GROUPS: usize = 20;

#[derive(Template)]
#[template(path = "console/dead.html")]
struct Page {
    frame: Frame,
    filter: String,
    filtered: bool,
    error: Option<String>,
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

/// Which dead letters to show.
#[derive(Debug, Deserialize)]
pub(super) struct PageQuery {
    #[serde(default)]
    filter: String,
    cursor: Option<Cursor>,
}

/// `/dead`
pub(super) async fn page(
    State(console): State<Console>,
    user: User,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let operate = &console.operate;
    let limit = Limit::new(50).unwrap_or_default();
    let filter = query.filter.trim();
    let list = list_id(LIST, &filter)?;
    let after: Option<dead_letter::Cursor> = query
        .cursor
        .as_ref()
        .map(|cursor| cursor.decode(&list))
        .transpose()?;
    let rows = u32::try_from(limit.rows_to_fetch()).unwrap_or(u32::MAX);
    // An invalid filter is reported next to the field.
    let (found, error) = match operate.dead(filter, after.as_ref(), rows).await {
        Ok(found) => (found, None),
        Err(OperateError::Filter(invalid)) => (Vec::new(), Some(invalid.to_string())),
        Err(other) => return Err(other.into()),
    };
    let (groups, count) = if error.is_some() {
        (Vec::new(), "None".to_owned())
    } else {
        let groups = operate.dead_groups(filter).await?;
        let preview = operate.preview(filter).await?;
        let more = if preview.more { "+" } else { "" };
        (groups, format!("{}{more}", format::count(preview.matching)))
    };
    let found = postrider_web::Page::from_rows(
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
    let operations = operate.operations(None, MAX_OPERATIONS).await?;
    let status = if error.is_some() {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    let page = Page {
        frame: Frame::new("Dead letters", "dead", &user),
        filtered: !filter.is_empty(),
        filter: filter.to_owned(),
        error,
        words: &WORDS,
        count,
        running: operations
            .iter()
            .any(|operation| operation.state == "running"),
        operations: operations.into_iter().map(Operation::from).collect(),
        groups: groups
            .into_iter()
            .take(MAX_GROUPS)
            .map(Group::from)
            .collect(),
        letters: found.items.into_iter().map(Letter::from).collect(),
        first: query.cursor.is_none(),
        newest,
        more,
    };
    answer_with(status, &page)
}
