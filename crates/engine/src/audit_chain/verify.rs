//! Recomputes the chain from the first record, page by page.

use gpuaas_model::{ChainDefect, ChainResult, Timestamp};
use gpuaas_store::{AuditRecord, AuditSealRecord, StoreError};
use gpuaas_trust::TaskKey;

use super::{ChainError, ChainRecords, FIRST_PREVIOUS, SealDigest};
use crate::{engine::Engine, keys::audit_seal_statement};

/// Seals per page.
const SEALS_PER_PAGE: u32 = 500;

/// The newest seal of a chain, or one that somebody noted earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The number of the seal.
    pub seal: u64,
    /// The digest of the seal, 64 hex digits.
    pub digest: String,
}

/// The first defect of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainBreak {
    /// How the chain differs.
    pub defect: ChainDefect,
    /// The number of the seal at fault; `None` if the defect is after the newest seal.
    pub seal: Option<u64>,
    /// The number of the record at fault; `None` if the seal does not tell which of its records it is.
    pub record: Option<u64>,
    /// A description of the defect.
    pub detail: String,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// How many records were read, up to the defect if there is one.
    pub records: u64,
    /// How many of the records were read from archives.
    pub archived: u64,
    /// How many of the records no seal covers yet.
    pub unsealed: u64,
    /// How many seals are intact, up to the defect if there is one.
    pub seals: u64,
    /// The last intact seal; `None` if there is none.
    pub head: Option<ChainHead>,
    /// When the last intact seal was made.
    pub sealed_at: Option<Timestamp>,
    /// The first defect; `None` if the chain is intact.
    pub broken: Option<ChainBreak>,
}

impl Verification {
    /// The result in one word.
    pub fn result(&self) -> ChainResult {
        if self.broken.is_some() { ChainResult::Broken } else { ChainResult::Intact }
    }
}

/// Verifies every seal, every record, and that the chain contains `expected`.
pub(crate) async fn verify(engine: &Engine, expected: Option<&ChainHead>) -> Result<Verification, ChainError> {
    let (keys, records) = (signing_keys(engine).await?, ChainRecords::of(engine));
    let mut walk = Walk { engine, keys, records, last: 0, found: Verification::default() };
    match walk.run(expected).await {
        Ok(()) => {}
        Err(Stop::Broken(broken)) => walk.found.broken = Some(broken),
        Err(Stop::Failed(error)) => return Err(error),
    }
    Ok(Verification { archived: walk.records.from_archives, ..walk.found })
}

/// Reads every task-signing key that ever existed.
async fn signing_keys(engine: &Engine) -> Result<Vec<TaskKey>, StoreError> {
    let stored = engine.store().read().await?.signing_keys().await?;
    let keys = stored.into_iter().map(|stored| stored.key);
    Ok(keys.map(|key| TaskKey { kid: key.key_id, public: key.public, state: key.state }).collect())
}

/// Why a verification ends early.
enum Stop {
    Broken(ChainBreak),
    Failed(ChainError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

struct Walk<'a> {
    engine: &'a Engine,
    keys: Vec<TaskKey>,
    records: ChainRecords<'a>,
    /// The number of the last verified record.
    last: u64,
    found: Verification,
}

impl Walk<'_> {
    async fn run(&mut self, expected: Option<&ChainHead>) -> Result<(), Stop> {
        loop {
            let seals = self.engine.store().read().await?.audit_seals(self.found.seals, SEALS_PER_PAGE).await?;
            if seals.is_empty() {
                break;
            }
            for seal in &seals {
                self.read_key(&seal.key_id).await?;
                self.check_seal(seal)?;
                self.check_records(seal).await?;
                check_expected(seal, expected)?;
                self.found.seals = seal.number;
                self.found.head = Some(ChainHead { seal: seal.number, digest: seal.digest.clone() });
                self.found.sealed_at = Some(seal.at);
            }
        }
        if let Some(expected) = expected.filter(|expected| expected.seal > self.found.seals) {
            let detail =
                format!("the chain ends with seal {}; the given head is seal {}", self.found.seals, expected.seal);
            return Err(broken(ChainDefect::Missing, Some(self.found.seals + 1), None, detail));
        }
        self.check_unsealed().await
    }

    /// Reads the keys again if this one is unknown: it may have replaced another one since the verification began.
    async fn read_key(&mut self, key_id: &str) -> Result<(), StoreError> {
        if self.keys.iter().all(|key| key.kid != key_id) {
            self.keys = signing_keys(self.engine).await?;
        }
        Ok(())
    }

    /// Checks the seal itself: its number, its signature and that it continues the one before it.
    fn check_seal(&self, seal: &AuditSealRecord) -> Result<(), Stop> {
        let number = self.found.seals + 1;
        if seal.number != number {
            return Err(broken(ChainDefect::Missing, Some(number), None, format!("seal {number} is missing")));
        }
        let key = self.keys.iter().find(|key| key.kid == seal.key_id);
        let statement = audit_seal_statement(self.engine.keys().control_plane(), seal);
        if !key.is_some_and(|key| statement.is_signed_by(key, &seal.signature)) {
            let detail = match key {
                Some(key) => format!("seal {number} is not signed by its key {}", key.kid),
                None => format!("seal {number} names the key {}, which this control plane does not have", seal.key_id),
            };
            return Err(broken(ChainDefect::Signature, Some(number), None, detail));
        }
        let previous = self.found.head.as_ref().map_or(FIRST_PREVIOUS, |head| head.digest.as_str());
        if seal.previous != previous || seal.first != self.last + 1 {
            let detail = format!("seal {number} does not continue the seal before it");
            return Err(broken(ChainDefect::Changed, Some(number), None, detail));
        }
        Ok(())
    }

    /// Checks the records that the seal covers.
    async fn check_records(&mut self, seal: &AuditSealRecord) -> Result<(), Stop> {
        let mut digest = SealDigest::after(&seal.previous);
        while self.last < seal.last {
            self.read_records(seal.last, Some(seal.number), |record| digest.add(record)).await?;
        }
        if digest.finish() == seal.digest {
            return Ok(());
        }
        let AuditSealRecord { number, first, last, records, .. } = seal;
        let numbers = last - first + 1;
        let (defect, how) = if *records < numbers {
            (ChainDefect::Added, format!("{numbers} records are there, but {records} were sealed"))
        } else {
            (ChainDefect::Changed, "at least one of them was changed since it was sealed".to_owned())
        };
        let only = (first == last).then_some(*first);
        Err(broken(defect, Some(*number), only, format!("records {first} to {last} differ from seal {number}: {how}")))
    }

    /// Checks the numbers of the records after the newest seal.
    async fn check_unsealed(&mut self) -> Result<(), Stop> {
        let (sealed, newest) = (self.last, self.engine.store().read().await?.last_audit().await?);
        while self.last < newest {
            self.read_records(newest, None, |_| {}).await?;
        }
        self.found.unsealed = self.last - sealed;
        let mut reader = self.engine.store().read().await?;
        let newest = reader.last_audit().await?;
        if newest < sealed {
            // The next records would get numbers that a seal covers.
            let seals = self.found.seals;
            let detail = format!("the counter is at {newest}, but seal {seals} ends with record {sealed}");
            return Err(broken(ChainDefect::Changed, Some(seals), None, detail));
        }
        match reader.chained_records(newest, 1).await?.first() {
            None => Ok(()),
            Some(added) => {
                let number = added.sequence;
                let detail = format!("record {number} is above the counter, which is at {newest}");
                Err(broken(ChainDefect::Added, None, Some(number), detail))
            }
        }
    }

    /// Reads the next records up to the number `until` and passes them on.
    async fn read_records(
        &mut self,
        until: u64,
        seal: Option<u64>,
        mut take: impl FnMut(&AuditRecord),
    ) -> Result<(), Stop> {
        let missing = |number: u64, detail: String| broken(ChainDefect::Missing, seal, Some(number), detail);
        let page = match self.records.next(self.last, until).await {
            Ok(page) => page,
            Err(error) => {
                let ChainError::Archive { record, .. } = error else { return Err(Stop::Failed(error)) };
                return Err(missing(record, error.to_string()));
            }
        };
        if page.is_empty() {
            let number = self.last + 1;
            return Err(missing(number, format!("record {number} is missing")));
        }
        for chained in page {
            let number = self.last + 1;
            if chained.sequence != number {
                return Err(missing(number, format!("record {number} is missing")));
            }
            let Some(record) = &chained.record else {
                let detail = format!("record {number} cannot be read");
                return Err(broken(ChainDefect::Changed, seal, Some(number), detail));
            };
            take(record);
            self.last = number;
            self.found.records += 1;
        }
        Ok(())
    }
}

/// Checks that the seal is the expected one, if it has the number of that one.
fn check_expected(seal: &AuditSealRecord, expected: Option<&ChainHead>) -> Result<(), Stop> {
    match expected {
        Some(expected) if expected.seal == seal.number && expected.digest != seal.digest => {
            let detail = format!("seal {} has the digest {}, not the given one", seal.number, seal.digest);
            Err(broken(ChainDefect::Changed, Some(seal.number), None, detail))
        }
        Some(_) | None => Ok(()),
    }
}

fn broken(defect: ChainDefect, seal: Option<u64>, record: Option<u64>, detail: String) -> Stop {
    Stop::Broken(ChainBreak { defect, seal, record, detail })
}
