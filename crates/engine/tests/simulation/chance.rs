//! The random numbers of a simulation, all derived from its seed.

use std::sync::{Mutex, PoisonError};

use gpuaas_model::Entropy;

/// A splitmix64 generator; its state is one `u64`.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of_seed(seed: u64) -> Self {
        // Scramble the seed, so that neighboring seeds do not start with similar numbers.
        let mut chance = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
        chance.next();
        chance
    }

    /// Returns an independent generator, seeded from this one.
    pub(crate) fn fork(&mut self) -> Self {
        Self::of_seed(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `0..bound`. Panics if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a number in `from..to`.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from)
    }

    /// Returns true with a probability of `often` per mille.
    pub(crate) fn per_mille(&mut self, often: u64) -> bool {
        self.below(1_000) < often
    }

    pub(crate) fn pick<T: Clone>(&mut self, among: &[T]) -> T {
        among[usize::try_from(self.below(among.len() as u64)).expect("an index fits")].clone()
    }
}

/// The entropy source of one process.
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
