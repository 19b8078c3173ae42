//! artifacts
