//! Random numbers that follow from a seed.

use std::sync::{Mutex, PoisonError};

use gpuaas_model::Entropy;

/// A splitmix64 generator; its state is one `u64`.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Returns the generator of a seed.
    pub fn of_seed(seed: u64) -> Self {
        // Scramble the seed, so that neighboring seeds do not start with similar numbers.
        let mut chance = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
        chance.next();
        chance
    }

    /// Returns an independent generator, seeded from this one.
    pub fn fork(&mut self) -> Self {
        Self::of_seed(self.next())
    }

    /// Returns the next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends, and is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `0..bound`. Panics if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a number in `from..to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from)
    }

    /// Returns true with a probability of `often` per mille.
    pub fn per_mille(&mut self, often: u64) -> bool {
        self.below(1_000) < often
    }

    /// Returns one of the values. Panics if there is none.
    pub fn pick<T: Clone>(&mut self, among: &[T]) -> T {
        among[usize::try_from(self.below(among.len() as u64)).expect("an index fits")].clone()
    }
}

/// A source of random bytes.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<Chance>);

impl SeededEntropy {
    /// Returns a source that uses this generator.
    pub fn new(chance: Chance) -> Self {
        Self(Mutex::new(chance))
    }

    /// Returns the source of a seed.
    pub fn of_seed(seed: u64) -> Self {
        Self::new(Chance::of_seed(seed))
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
