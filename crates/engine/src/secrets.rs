//! Opens and makes sealed secrets. Plain bytes live in memory that is wiped, for as long as a call needs them.

use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_model::SecretId;
use zeroize::Zeroizing;

use crate::{effects::Secrets, engine::Engine};

/// The store's secrets, opened with the engine's keys.
pub struct SealedSecrets {
    engine: Arc<Engine>,
}

impl SealedSecrets {
    /// Secrets of that engine's store.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }
}

#[async_trait]
impl Secrets for SealedSecrets {
    async fn open(&self, id: SecretId) -> Result<Zeroizing<Vec<u8>>, String> {
        let mut reader = self.engine.store().read().await.map_err(|error| error.to_string())?;
        let record = reader.secret(id).await.map_err(|error| error.to_string())?;
        if record.sealed.is_empty() {
            return Err(format!("the secret {} is not there yet", record.name));
        }
        self.engine.keys().unseal(id, &record.sealed).map_err(|error| error.to_string())
    }
}
