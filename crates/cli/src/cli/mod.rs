//! The command line.

mod alerts;
mod client;
mod config;
mod dead;
mod demo;
mod doctor;
mod evidence;
mod exports;
mod listing;
mod man;
mod migrate;
mod openapi;
mod options;
mod orders;
mod output;
mod overview;
mod payments;
mod protocols;
mod serve;
mod sim;
mod status;
mod timeline;
mod token;
mod top;
mod wait;
mod wallet;

use std::{io::Write, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};

use crate::exit::{self, Exit, Failure};
use options::{ClientOptions, ConfigOptions};
use output::Output;

/// Durable jobs and delivery on PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "postrider", version, about, after_help = exit::HELP, max_term_width = 110)]
pub struct Cli {
    /// Print JSON on standard output.
    #[arg(long, global = true, help_heading = options::GLOBAL)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server: API, workers, scheduler, console.
    Serve(serve::Args),
    /// Run a demonstration on a private PostgreSQL.
    Demo(demo::Args),
    /// Apply pending database migrations.
    Migrate(migrate::Args),
    /// Examine the database: invariants, health, and what to do about findings.
    Doctor(doctor::Args),
    /// Print the effective configuration and where each value came from.
    Config(config::Args),
    /// Show health and overview of a running server.
    Status(status::Args),
    /// Show a live overview of a running server.
    Top(top::Args),
    /// Show the history of an id or key, across services.
    #[command(alias = "trace")]
    Timeline(timeline::Args),
    /// List, redrive and archive dead letters.
    Dead(dead::Args),
    /// List active alerts, or print the alert rules.
    Alerts(alerts::Args),
    /// Submit export jobs, follow them, download their files.
    Exports(exports::Args),
    /// Send orders and follow them.
    Orders(orders::Args),
    /// Pay, follow payments, and reconcile stuck ones.
    Payments(payments::Args),
    /// Show and open accounts of the wallet.
    Wallet(wallet::Args),
    /// Submit evidence and follow it.
    Evidence(evidence::Args),
    /// Upload protocols, follow them, retry and review them.
    Protocols(protocols::Args),
    /// Read one PDF, in a process of its own.
    #[command(hide = true)]
    PdfText,
    /// Simulate an outside party.
    Sim(sim::Args),
    /// Create an API token and its line for the configuration.
    Token(token::Args),
    /// Print the OpenAPI document.
    Openapi,
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    Man(man::Args),
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage_error(&error),
    };
    let output = Output::new(cli.json);
    match run(cli, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            failure.exit.into()
        }
    }
}

/// Prints a parse error. Help and version come this way too; clap knows the stream and the exit code.
fn usage_error(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    // The arguments were not parsed, so look for --json among the raw words.
    let json = std::env::args_os()
        .take_while(|word| word != "--")
        .any(|word| word == "--json");
    if json {
        let message = error.to_string();
        let message = message.trim().trim_start_matches("error: ");
        Output::new(true).failure(&Failure::new(Exit::Usage, message));
    } else {
        let _ = error.print();
    }
    Exit::Usage.into()
}

fn run(cli: Cli, output: &Output) -> Result<(), Failure> {
    match cli.command {
        Command::Config(args) => block_on(config::run(&args, output)),
        Command::Token(args) => token::run(&args, output),
        Command::Openapi => openapi::run(output),
        Command::Man(args) => man::run(&args, output),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "postrider", &mut script);
            output.bytes(&script)
        }
        Command::PdfText => protocols::pdf_text(),
        Command::Serve(args) => block_on(serve::run(args, output)),
        Command::Demo(args) => block_on(demo::run(args, output)),
        Command::Migrate(args) => block_on(migrate::run(args, output)),
        Command::Doctor(args) => block_on(doctor::run(args, output)),
        Command::Dead(args) => block_on(dead::run(args, output)),
        Command::Evidence(args) => block_on(evidence::run(args, output)),
        Command::Exports(args) => block_on(exports::run(args, output)),
        Command::Orders(args) => block_on(orders::run(args, output)),
        Command::Payments(args) => block_on(payments::run(args, output)),
        Command::Wallet(args) => block_on(wallet::run(args, output)),
        Command::Protocols(args) => block_on(protocols::run(args, output)),
        Command::Sim(args) => block_on(sim::run(args, output)),
        Command::Top(args) => block_on(top::run(args, output)),
        Command::Timeline(args) => block_on(timeline::run(args, output)),
        Command::Alerts(args) => block_on(alerts::run(args, output)),
        Command::Status(args) => block_on(status::run(args, output)),
    }
}

fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tls();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::caused(Exit::Failed, "can't start threads", &e))?;
    let result = runtime.block_on(work);
    // A blocking read that never returns (standard input, a slow name server) must not delay the exit.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    result
}

/// One TLS provider for all dependencies; with two, the first connection would panic.
fn tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Writes to standard output; a closed pipe (`| head`) is not a failure.
fn write_stdout(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::caused(
            Exit::Failed,
            "standard output can't be written",
            &e,
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_is_in_the_manual() {
        let page = include_str!("../../../../docs/operations/command-line.md");
        let named = |name: &str| {
            let (alone, with_more) = (format!("`{name}`"), format!("`{name} "));
            page.lines()
                .filter(|line| line.starts_with("| `"))
                .filter_map(|line| line.split('|').nth(1))
                .any(|cell| cell.contains(&alone) || cell.contains(&with_more))
        };
        let cli = Cli::command();
        let sim = cli.find_subcommand("sim").into_iter();
        let parties = sim.flat_map(|sim| {
            sim.get_subcommands()
                .map(|p| format!("sim {}", p.get_name()))
        });
        let commands = cli
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        for name in commands.map(|c| c.get_name().to_owned()).chain(parties) {
            assert!(
                named(&name),
                "{name} is not in docs/operations/command-line.md"
            );
        }
    }

    #[test]
    fn commands_that_scripts_rely_on_still_parse() {
        for words in [
            "postrider serve --listen 127.0.0.1:8080 --data-dir d --config f --database-url postgres://h/d --roles api",
            "postrider migrate --dry-run --json",
            "postrider demo --data-dir d --seconds 10 --listen 127.0.0.1:0 --keep",
            "postrider doctor --json --data-dir d",
            "postrider config --json",
            "postrider status --server http://127.0.0.1:8080",
            "postrider exports submit inputs.json --wait --idempotency-key k",
            "postrider exports list --status FAILED --json",
            "postrider exports show J20260110_000777 --status DLQ",
            "postrider exports show J20260110_000777 --limit 10 --cursor -c",
            "postrider exports cancel J20260110_000777",
            "postrider exports redrive J20260110_000777 --wait",
            "postrider exports download J20260110_000777 --dir d",
            "postrider orders send --key k --account A1 --symbol ACME --side buy --quantity 10 --limit-price 12.50 --wait",
            "postrider orders show k --server http://127.0.0.1:8080",
            "postrider orders list --status aborted --json",
            "postrider orders cancel k",
            "postrider orders redrive k --allow-stale",
            "postrider payments pay --account acc-1 --amount 12.50 --currency USD --uuid 0198c1e2-0000-7000-8000-000000000001 --wait",
            "postrider payments show 0198c1e2-0000-7000-8000-000000000001",
            "postrider payments list --status pending --account acc-1 --json",
            "postrider payments reconcile --server http://127.0.0.1:8080",
            "postrider wallet show acc-1 --entries",
            "postrider wallet open acc-1 --currency USD --balance 100",
            "postrider protocols upload f.pdf --title T --wait",
            "postrider protocols show 01890a5d-ac96-774b-bcce-b302099a8057",
            "postrider protocols list --status dead_letter --json",
            "postrider protocols retry 01890a5d-ac96-774b-bcce-b302099a8057",
            "postrider protocols review 01890a5d-ac96-774b-bcce-b302099a8057 --reject --reason R",
            "postrider sim broker --listen 127.0.0.1:0 --script f",
            "postrider evidence submit e.zip --merchant m-1 --wait",
            "postrider evidence show 7f0c2f9e-4f1c-4f7e-9c7a-1d2e3f4a5b6c --json",
            "postrider evidence list --status completed --merchant m-1",
            "postrider evidence retry 7f0c2f9e-4f1c-4f7e-9c7a-1d2e3f4a5b6c --early",
            "postrider sim cases --listen 127.0.0.1:0 --script f",
            "postrider alerts list --json",
            "postrider alerts rules",
            "postrider openapi",
            "postrider dead list --filter service:orders --limit 10 --json",
            "postrider timeline k-1 --server http://127.0.0.1:8080",
            "postrider trace k-1",
            "postrider orders send --file f --wait --timeout 30s",
            "postrider config --local",
            "postrider top --once --every 5",
            "postrider dead list --groups",
            "postrider dead show orders.outbox_orders 7",
            "postrider dead redrive --filter code:TIMEOUT --rate 50 --reason R --yes --wait",
            "postrider dead archive --all --yes --json",
        ] {
            let parsed = Cli::try_parse_from(words.split(' '));
            assert!(parsed.is_ok(), "{words}: {:?}", parsed.err());
        }
    }

    /// Every command's help, leaf commands included.
    fn leaves(command: &clap::Command) -> Vec<clap::Command> {
        let children: Vec<clap::Command> = command.get_subcommands().flat_map(leaves).collect();
        if children.is_empty() {
            return vec![command.clone()];
        }
        children
    }

    #[test]
    fn usage_lines_show_no_global_option_and_global_options_come_last_in_help() {
        let mut cli = Cli::command();
        cli.build();
        for mut command in leaves(&cli) {
            let (name, help) = (
                command.get_name().to_owned(),
                command.render_help().to_string(),
            );
            let usage = help.lines().find(|line| line.starts_with("Usage:"));
            assert!(
                !usage.unwrap_or_default().contains("--server"),
                "{name}: {usage:?}"
            );
            if command
                .get_arguments()
                .any(|arg| arg.get_long() == Some("server"))
            {
                let (own, global) = help.split_once(options::GLOBAL).expect("the heading");
                assert!(!own.contains("--server"), "{name}: {help}");
                let next = global
                    .lines()
                    .skip(1)
                    .find(|line| !line.starts_with(' ') && line.ends_with(':'));
                assert!(
                    next.is_none_or(|heading| heading == "Exit codes:"),
                    "{name}: {next:?} follows the global options"
                );
            }
        }
        let missing = Cli::try_parse_from(["postrider", "orders", "send"]).expect_err("no key");
        assert!(!missing.to_string().contains("--server"), "{missing}");
    }
}
