//! How much: a share with every test run, the whole with `make verify`.
//!
//! `POSTRIDER_PROOF=long` asks for the long figures; each can also be set alone.

/// Workers killed with SIGKILL.
pub fn kills() -> usize {
    figure("POSTRIDER_PROOF_KILLS", 100, 10_000)
}

/// Server crashes: a killed backend, or an immediate restart.
pub fn crashes() -> usize {
    figure("POSTRIDER_PROOF_CRASHES", 20, 1_000)
}

/// How often each crash point meets each action.
pub fn rounds() -> usize {
    figure("POSTRIDER_PROOF_ROUNDS", 1, 100)
}

/// How many crash points meet each network fault; more than there are means all.
pub fn verbs() -> usize {
    figure("POSTRIDER_PROOF_VERBS", 1, usize::MAX)
}

/// How often each scarce resource is tried.
pub fn scarcities() -> usize {
    figure("POSTRIDER_PROOF_SCARCITIES", 1, 50)
}

pub fn is_long() -> bool {
    std::env::var("POSTRIDER_PROOF").is_ok_and(|value| value == "long")
}

fn figure(variable: &str, share: usize, whole: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is a number")),
        Err(_) if is_long() => whole,
        Err(_) => share,
    }
}
