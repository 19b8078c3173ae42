//! All randomness of a seed: one number decides everything.

use std::sync::{Mutex, PoisonError};

use gpuaas_model::Entropy;

/// Numbers that follow from a seed: splitmix64, whose whole state is one word.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of_seed(seed: u64) -> Self {
        // Neighbouring seeds must not begin alike.
        let mut chance = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
        chance.next();
        chance
    }

    /// Another sequence that follows from this one.
    pub(crate) fn fork(&mut self) -> Self {
        Self::of_seed(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number from `from` up to and without `to`.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from)
    }

    /// True so often of a thousand times.
    pub(crate) fn per_mille(&mut self, often: u64) -> bool {
        self.below(1_000) < often
    }

    pub(crate) fn pick<T: Clone>(&mut self, among: &[T]) -> T {
        among[usize::try_from(self.below(among.len() as u64)).expect("an index fits")].clone()
    }
}

/// The randomness of one process.
pub(crate) struct SeededEntropy(Mutex<Chance>);

impl SeededEntropy {
    pub(crate) fn new(chance: Chance) -> Self {
        Self(Mutex::new(chance))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut chance = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&chance.next().to_le_bytes()[..chunk.len()]);
        }
    }
}
