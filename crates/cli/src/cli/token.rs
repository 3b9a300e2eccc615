//! `postrider token`: a new API token. The token is shown once; only its hash goes into the configuration.

use postrider_web::{Scope, auth::NewToken};
use serde_json::json;

use super::Output;
use crate::exit::{Exit, Failure};

/// Options of `token`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the caller, for logs and the audit log.
    #[arg(long)]
    name: String,
    /// Scopes: submit, read, operate, internal.
    #[arg(long, value_delimiter = ',', required = true, value_name = "SCOPE,…")]
    scopes: Vec<Scope>,
}

pub(super) fn run(args: &Args, output: &Output) -> Result<(), Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if args.name.is_empty() || !args.name.chars().all(plain) {
        return Err(Failure::new(
            Exit::Usage,
            "a token's name consists of letters, digits, '-', '_' and '.'",
        ));
    }
    let made = NewToken::generate();
    let (token, sha256) = (made.secret(), made.sha256());
    let mut scopes: Vec<&str> = args.scopes.iter().map(|scope| scope.name()).collect();
    scopes.sort_unstable();
    scopes.dedup();
    let answer = json!({ "name": args.name, "token": token, "sha256": sha256, "scopes": scopes });
    output.answer(&answer, || {
        format!(
            "token (shown once, give it to the caller):\n  {token}\n\nadd to server.tokens in the configuration:\n  \
             {{ name = \"{}\", sha256 = \"{sha256}\", scopes = {scopes:?} }}",
            args.name
        )
    })
}
