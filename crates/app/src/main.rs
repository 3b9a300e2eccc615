//! The only binary of the house.

use std::process::ExitCode;

/// A request makes some two hundred small allocations on whichever thread runs it, and another thread frees them: what
/// the system's allocator is slowest at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    postrider::cli::main()
}
