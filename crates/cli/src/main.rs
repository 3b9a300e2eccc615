//! The only binary of the house.

use std::process::ExitCode;

/// A request is some hundred small allocations on whichever thread runs it: docs/decisions/0010.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    postrider_cli::cli::main()
}
