//! Random choices that can be made again: all follow from one seed.

use std::sync::LazyLock;

const VARIABLE: &str = "POSTRIDER_PROOF_SEED";

static SEED: LazyLock<u64> = LazyLock::new(|| match std::env::var(VARIABLE) {
    Ok(text) => text.parse().expect("POSTRIDER_PROOF_SEED is a number"),
    Err(_) => rand::random::<u32>().into(),
});

/// A source of choices (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The choices of one scenario. Says how to make them again, should the scenario fail.
    pub fn of(scenario: &str) -> Self {
        let seed = *SEED;
        println!("{scenario}: again with {VARIABLE}={seed} cargo test -p postrider --test proof");
        let mut dice = Self(seed);
        for byte in scenario.bytes() {
            dice.0 = dice.0.rotate_left(8) ^ u64::from(byte);
            dice.roll();
        }
        dice
    }

    /// Independent choices for a part of the scenario that runs concurrently with others.
    pub fn split(&mut self) -> Self {
        Self(self.roll())
    }

    /// As text, for a child process, and back.
    pub fn seed(&mut self) -> u64 {
        self.roll()
    }

    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to less than `n`.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.roll() % n as u64).unwrap()
    }

    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    pub fn millis(&mut self, from: usize, to: usize) -> std::time::Duration {
        let millis = from + self.below(to - from);
        std::time::Duration::from_millis(millis as u64)
    }
}
