//! `postrider openapi`: the document that `/openapi.json` serves.

use super::Output;
use crate::{
    exit::{Exit, Failure},
    http,
};

pub(super) fn run(output: &Output) -> Result<(), Failure> {
    let document = http::openapi_json()
        .map_err(|e| Failure::caused(Exit::Failed, "the OpenAPI document can't be written", &e))?;
    output.bytes(document.as_bytes())
}
