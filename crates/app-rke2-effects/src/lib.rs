//! rke2-effects
