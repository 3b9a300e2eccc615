//! Options that several commands share.

use std::path::PathBuf;

use crate::config::{self, Effective, Overrides};
use crate::exit::{Exit, Failure};

/// Heading of the options that every command has; they come last in a command's help.
pub const GLOBAL: &str = "Global options";

const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// Where the configuration comes from.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Configuration")]
pub struct ConfigOptions {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE", env = "POSTRIDER_CONFIG")]
    config: Option<PathBuf>,
    /// Directory for the embedded PostgreSQL and local files.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Use this database instead of the embedded PostgreSQL.
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// Set any other key, e.g. --set log.format=json; repeatable.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .ok_or_else(|| "write KEY=VALUE, e.g. log.format=json".to_owned())
}

impl ConfigOptions {
    /// Was any of them given? Then the command is about this configuration, not about a running server's.
    pub fn is_given(&self) -> bool {
        self.config.is_some()
            || self.data_dir.is_some()
            || self.database_url.is_some()
            || !self.set.is_empty()
    }

    /// The effective configuration; `more` are flags of the command itself: flag, key, value.
    pub fn load(&self, more: &[(&str, &str, Option<&str>)]) -> Result<Effective, Failure> {
        let own = [
            ("--data-dir", "data_dir", self.data_dir.as_deref()),
            (
                "--database-url",
                "database.url",
                self.database_url.as_deref(),
            ),
        ];
        let mut flags: Vec<(String, String, String)> = own
            .iter()
            .chain(more)
            .filter_map(|(flag, key, value)| {
                value.map(|v| ((*flag).into(), (*key).into(), v.into()))
            })
            .collect();
        flags.extend(
            self.set
                .iter()
                .map(|(key, value)| ("--set".into(), key.clone(), value.clone())),
        );
        // None of our environment variables holds anything but text.
        let env = std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        config::load(
            &Overrides {
                file: self.config.clone(),
                flags,
            },
            env,
        )
        .map_err(|invalid| Failure::new(Exit::Config, invalid.to_string()))
    }
}

/// How to reach a running server.
#[derive(Debug, Clone, clap::Args)]
pub struct ClientOptions {
    /// Address of the server [default: http://127.0.0.1:8080].
    // The default isn't clap's: clap would print the option in usage lines as if it were required.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "POSTRIDER_SERVER",
        help_heading = GLOBAL
    )]
    server: Option<String>,
    /// API token.
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "POSTRIDER_TOKEN",
        hide_env_values = true,
        help_heading = GLOBAL
    )]
    pub token: Option<String>,
}

impl ClientOptions {
    /// The server's address.
    pub fn server(&self) -> &str {
        self.server.as_deref().unwrap_or(DEFAULT_SERVER)
    }
}
