//! Recomputes the chain from the first record, page by page, and continues behind defects.
//!
//! A seal with a valid signature is what the control plane wrote. So behind a defect the verification continues with the digest that the
//! last such seal states, and what follows is judged on its own. The records of a seal without a valid signature cannot be judged.

use std::fmt;

use gpuaas_model::{ChainDefectKind, ChainResult, Timestamp};
use gpuaas_store::{AuditRecord, AuditSealRecord, ChainedSeal, Store, StoreError};
use gpuaas_trust::TaskKey;

use super::{ChainError, ChainRecords, FIRST_PREVIOUS, SealDigest, Segment, readable};
use crate::{
    keys::{Keys, audit_seal_statement},
    port::ArchiveFiles,
};

/// Seals per page.
const SEALS_PER_PAGE: u32 = 500;
/// How many defects a verification describes, so that its result stays readable. It counts all of them.
const DEFECTS_MAX: usize = 20;

/// The newest seal of a chain, or one that somebody noted earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The number of the seal.
    pub seal: u64,
    /// The digest of the seal, 64 hex digits.
    pub digest: String,
}

impl ChainHead {
    /// Names a seal.
    pub(super) fn of(seal: &AuditSealRecord) -> Self {
        Self { seal: seal.number, digest: seal.digest.clone() }
    }
}

/// Shows the head as the command line takes it: `412:9f86…`.
impl fmt::Display for ChainHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seal, self.digest)
    }
}

/// A defect of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainDefect {
    /// How the chain differs.
    pub kind: ChainDefectKind,
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
    /// How many records were read.
    pub records: u64,
    /// How many of the records were read from archives.
    pub archived: u64,
    /// How many of the records no seal covers yet.
    pub unsealed: u64,
    /// How many seals were read.
    pub seals: u64,
    /// The newest seal with a valid signature; `None` if there is none.
    pub head: Option<ChainHead>,
    /// When that seal was made.
    pub sealed_at: Option<Timestamp>,
    /// The first defects, in the order of the chain, at most `DEFECTS_MAX`.
    pub defects: Vec<ChainDefect>,
    /// How many defects there are.
    pub defects_found: u64,
}

impl Verification {
    /// The result in one word.
    pub fn result(&self) -> ChainResult {
        if self.defects_found > 0 { ChainResult::Broken } else { ChainResult::Intact }
    }
}

/// Verifies every seal, every record, and that the chain contains `expected`.
pub(crate) async fn verify(
    (store, archives): (&Store, &dyn ArchiveFiles),
    own: &Keys,
    expected: Option<&ChainHead>,
) -> Result<Verification, ChainError> {
    let (keys, records) = (signing_keys(store).await?, ChainRecords::of(store, archives));
    let found = Verification::default();
    let mut walk = Walk { store, own, keys, records, number: 0, is_linked: true, last: 0, gap_until: 0, found };
    walk.check_seals(expected).await?;
    walk.check_unsealed().await?;
    Ok(Verification { archived: walk.records.from_archives, ..walk.found })
}

/// Reads every task-signing key that ever existed.
async fn signing_keys(store: &Store) -> Result<Vec<TaskKey>, StoreError> {
    let stored = store.read().await?.signing_keys().await?;
    let keys = stored.into_iter().map(|stored| stored.key);
    Ok(keys.map(|key| TaskKey { kid: key.key_id, public: key.public, state: key.state }).collect())
}

struct Walk<'a> {
    store: &'a Store,
    /// The keys of this control plane.
    own: &'a Keys,
    keys: Vec<TaskKey>,
    records: ChainRecords<'a>,
    /// The number of the last seal.
    number: u64,
    /// Whether the next seal must continue the head; false behind a seal that is missing or has no valid signature.
    is_linked: bool,
    /// The number of the last record.
    last: u64,
    /// The records up to this number are in a gap that is among the defects.
    gap_until: u64,
    found: Verification,
}

impl Walk<'_> {
    /// Checks all seals with their records, and that `expected` is among them.
    async fn check_seals(&mut self, expected: Option<&ChainHead>) -> Result<(), ChainError> {
        let mut is_expected_found = false;
        'all: loop {
            let seals = self.store.read().await?.chained_seals(self.number, SEALS_PER_PAGE).await?;
            if seals.is_empty() {
                break;
            }
            for ChainedSeal { number, seal } in seals {
                if number == u64::MAX {
                    self.report(ChainDefectKind::Changed, None, None, "a seal has no number".to_owned());
                    // It is behind all others.
                    break 'all;
                }
                self.check_number(number);
                if let Some(expected) = expected.filter(|expected| expected.seal == number) {
                    is_expected_found = true;
                    self.check_expected(expected, seal.as_ref());
                }
                match seal {
                    Some(seal) => self.check_seal(&seal).await?,
                    None => {
                        self.is_linked = false;
                        self.report(
                            ChainDefectKind::Changed,
                            Some(number),
                            None,
                            format!("seal {number} cannot be read"),
                        );
                    }
                }
                self.number = number;
                self.found.seals += 1;
            }
        }
        if let Some(ChainHead { seal, .. }) = expected.filter(|_| !is_expected_found) {
            let detail = format!("the chain has no seal {seal}, which is the given head; it ends with {}", self.number);
            self.report(ChainDefectKind::Missing, Some(*seal), None, detail);
        }
        Ok(())
    }

    fn check_number(&mut self, number: u64) {
        let next = self.number + 1;
        if number == next {
            return;
        }
        self.is_linked = false;
        let detail = match number - next {
            1 => format!("seal {next} is missing"),
            _ => format!("seals {next} to {} are missing", number - 1),
        };
        self.report(ChainDefectKind::Missing, Some(next), None, detail);
    }

    /// Checks that the seal with the number of the expected one is that one. One that cannot be read is a defect anyway.
    fn check_expected(&mut self, expected: &ChainHead, seal: Option<&AuditSealRecord>) {
        if let Some(seal) = seal.filter(|seal| seal.digest != expected.digest) {
            let detail = format!("seal {} has the digest {}, not the given one", seal.number, seal.digest);
            self.report(ChainDefectKind::Changed, Some(seal.number), None, detail);
        }
    }

    async fn check_seal(&mut self, seal: &AuditSealRecord) -> Result<(), ChainError> {
        self.read_key(&seal.key_id).await?;
        if !self.check_signature(seal) {
            self.is_linked = false;
            return Ok(());
        }
        let previous = self.found.head.as_ref().map_or(FIRST_PREVIOUS, |head| head.digest.as_str());
        let continues = seal.previous == previous && seal.first == self.last + 1;
        if (self.is_linked && !continues) || seal.first <= self.last || seal.last < seal.first {
            let number = seal.number;
            let detail = format!("seal {number} does not continue the seal before it");
            self.report(ChainDefectKind::Changed, Some(number), None, detail);
        }
        // Never back: a seal of records that an earlier one covers would have them read twice.
        if seal.first > self.last && seal.last >= seal.first {
            self.last = seal.first - 1;
            self.check_records(seal).await?;
        }
        self.is_linked = true;
        self.found.head = Some(ChainHead::of(seal));
        self.found.sealed_at = Some(seal.at);
        Ok(())
    }

    /// Reads the keys again if this one is unknown: it may have replaced another one since the verification began.
    async fn read_key(&mut self, key_id: &str) -> Result<(), StoreError> {
        if self.keys.iter().all(|key| key.kid != key_id) {
            self.keys = signing_keys(self.store).await?;
        }
        Ok(())
    }

    /// Returns whether the signature of a seal is valid.
    fn check_signature(&mut self, seal: &AuditSealRecord) -> bool {
        let key = self.keys.iter().find(|key| key.kid == seal.key_id);
        let statement = audit_seal_statement(self.own.control_plane(), seal);
        if key.is_some_and(|key| statement.is_signed_by(key, &seal.signature)) {
            return true;
        }
        let number = seal.number;
        let detail = match key {
            Some(key) => format!("seal {number} is not signed by its key {}", key.kid),
            None => format!("seal {number} names the key {}, which this control plane does not have", seal.key_id),
        };
        self.report(ChainDefectKind::Signature, Some(number), None, detail);
        false
    }

    /// Checks the records that the seal covers.
    async fn check_records(&mut self, seal: &AuditSealRecord) -> Result<(), ChainError> {
        let (mut digest, mut read) = (SealDigest::after(&seal.previous), 0);
        let take = |record: &AuditRecord| {
            digest.add(record);
            read += 1;
        };
        self.read_records(seal.last, Some(seal.number), take).await?;
        let AuditSealRecord { number, first, last, records, .. } = seal;
        // Fewer records than were sealed: each that is missing or unreadable is a defect already, and explains the digest.
        if digest.finish() == seal.digest || read < *records {
            return Ok(());
        }
        let (defect, how) = if read > *records {
            (ChainDefectKind::Added, format!("{read} records are there, but {records} were sealed"))
        } else {
            (ChainDefectKind::Changed, "at least one of them was changed since it was sealed".to_owned())
        };
        let only = (first == last).then_some(*first);
        self.report(defect, Some(*number), only, format!("records {first} to {last} differ from seal {number}: {how}"));
        Ok(())
    }

    /// Checks the numbers of the records after the newest seal.
    async fn check_unsealed(&mut self) -> Result<(), ChainError> {
        let (sealed, read) = (self.last, self.found.records);
        let Some(newest) = self.counter().await? else { return Ok(()) };
        self.read_records(newest, None, |_| {}).await?;
        self.found.unsealed = self.found.records - read;
        let Some(newest) = self.counter().await? else { return Ok(()) };
        if newest < sealed {
            // The next records would get numbers that a seal covers.
            let seal = self.found.head.as_ref().map(|head| head.seal);
            let detail = format!("the counter is at {newest}, but a seal ends with record {sealed}");
            self.report(ChainDefectKind::Changed, seal, None, detail);
            return Ok(());
        }
        let added = self.store.read().await?.chained_records(newest, 1).await?.pop();
        if let Some(number) = added.map(|added| added.sequence) {
            let detail = match number {
                u64::MAX => "a record has no number".to_owned(),
                _ => format!("record {number} is above the counter, which is at {newest}"),
            };
            self.report(ChainDefectKind::Added, None, (number != u64::MAX).then_some(number), detail);
        }
        Ok(())
    }

    /// Returns the number of the newest record; `None`, with a defect, if the counter cannot be read.
    async fn counter(&mut self) -> Result<Option<u64>, ChainError> {
        match readable(self.store.read().await?.last_audit().await)? {
            Ok(newest) => Ok(Some(newest)),
            Err(why) => {
                self.report(ChainDefectKind::Changed, None, None, format!("the counter of the records: {why}"));
                Ok(None)
            }
        }
    }

    /// Reads the next records up to the number `until` and passes them on. Reports those that are missing or cannot be read.
    async fn read_records(
        &mut self,
        until: u64,
        seal: Option<u64>,
        mut take: impl FnMut(&AuditRecord),
    ) -> Result<(), ChainError> {
        // A gap over many seals, for example a lost archive, is one defect.
        self.last = self.last.max(self.gap_until.min(until));
        while self.last < until {
            match self.records.next(self.last, until).await? {
                Segment::Records(page) => {
                    for chained in page {
                        let number = chained.sequence;
                        self.last = number;
                        self.found.records += 1;
                        match &chained.record {
                            Some(record) => take(record),
                            None => {
                                let detail = format!("record {number} cannot be read");
                                self.report(ChainDefectKind::Changed, seal, Some(number), detail);
                            }
                        }
                    }
                }
                Segment::Gap(gap) => {
                    self.report(gap.defect()?, seal, Some(gap.first), gap.to_string());
                    self.gap_until = gap.last;
                    self.last = gap.last.min(until);
                }
            }
        }
        Ok(())
    }

    fn report(&mut self, kind: ChainDefectKind, seal: Option<u64>, record: Option<u64>, detail: String) {
        self.found.defects_found += 1;
        if self.found.defects.len() < DEFECTS_MAX {
            self.found.defects.push(ChainDefect { kind, seal, record, detail });
        }
    }
}
