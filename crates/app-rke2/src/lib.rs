//! rke2
