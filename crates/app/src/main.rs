//! The only binary of the house.

use std::process::ExitCode;

fn main() -> ExitCode {
    postrider::cli::main()
}
