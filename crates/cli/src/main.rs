//! The binary `postrider`.

use std::process::ExitCode;

/// A request makes some hundred small allocations: docs/decisions/0010.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    postrider_cli::cli::main()
}
