//! The built-in Case API: what a Case API does with artifact ids, without cases behind it.
//!
//! One artifact is attached once, however often it comes. What is attached is remembered in the database (the program's
//! default, so that the API's memory survives the program's death as a real one's would) or in memory (simulator, tests).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use uuid::Uuid;

use super::{Act, CaseApi, Content, Refusal, Script, Upload};
use crate::model::Code;

const ATTACH: &str = "
insert into evidence.paper_evidence (artifact_id, case_id, file_name, sha256) values ($1, $2, $3, $4)
on conflict (artifact_id) do nothing";

const KNOWN: &str =
    "select exists (select from evidence.paper_evidence where artifact_id = $1 and case_id = $2)";

/// Something that is attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// To which case.
    pub case_id: Uuid,
    /// Under which name.
    pub file_name: String,
    /// Of its content.
    pub sha256: String,
    /// How often it was attached: more than once is a fault of ours.
    pub attached: u32,
}

/// A call, as the API's own log has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// For which artifact.
    pub artifact_id: Uuid,
    /// The file's name.
    pub file_name: String,
    /// What was answered; 0 if nothing was.
    pub status: u16,
    /// Is it attached after this call?
    pub attached: bool,
}

#[derive(Default)]
struct Ledger {
    attached: BTreeMap<Uuid, Evidence>,
    calls: Vec<Call>,
    seen: BTreeMap<Uuid, u32>,
    deleted: BTreeSet<Uuid>,
}

enum Memory {
    Ours(Mutex<Ledger>),
    Database(PgPool),
}

/// A Case API that takes everything, unless its script says otherwise.
pub struct PaperCases {
    memory: Memory,
    script: Script,
}

/// What the API answers.
pub(super) enum Reaction {
    Status(u16, Option<u64>),
    HangUp,
}

impl PaperCases {
    /// With its memory in the database.
    #[must_use]
    pub fn in_database(pool: PgPool) -> Self {
        Self {
            memory: Memory::Database(pool),
            script: Script::default(),
        }
    }

    /// With its memory in this process, and a script.
    #[must_use]
    pub fn in_memory(script: Script) -> Self {
        Self {
            memory: Memory::Ours(Mutex::default()),
            script,
        }
    }

    /// The script, to change it.
    #[must_use]
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// Everything that is attached, if it is kept in this process.
    #[must_use]
    pub fn attached(&self) -> BTreeMap<Uuid, Evidence> {
        self.ledger(|ledger| ledger.attached.clone())
            .unwrap_or_default()
    }

    /// Every PUT so far, if they are kept in this process.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.ledger(|ledger| ledger.calls.clone())
            .unwrap_or_default()
    }

    /// There is no such case any more.
    pub fn delete_case(&self, case: Uuid) {
        self.ledger(|ledger| ledger.deleted.insert(case));
    }

    fn ledger<T>(&self, look: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        match &self.memory {
            Memory::Ours(ledger) => Some(look(
                &mut ledger.lock().unwrap_or_else(PoisonError::into_inner),
            )),
            Memory::Database(_) => None,
        }
    }

    /// Takes a file whose content was read and hashed already.
    pub(super) async fn receive(
        &self,
        case: Uuid,
        artifact: Uuid,
        file_name: &str,
        sha256: &str,
    ) -> Result<Reaction, sqlx::Error> {
        let (call, deleted) = self
            .ledger(|ledger| {
                let calls = ledger.seen.entry(artifact).or_default();
                *calls += 1;
                (*calls, ledger.deleted.contains(&case))
            })
            .unwrap_or((1, false));
        if deleted {
            return Ok(self.answer(artifact, file_name, 404, None));
        }
        Ok(match self.script.act(case, file_name, call) {
            Act::Accept => self.take(case, artifact, file_name, sha256).await?,
            Act::Fail {
                status,
                retry_after,
            } => self.answer(artifact, file_name, status, retry_after),
            Act::FailAfter { status } => {
                self.attach_now(case, artifact, file_name, sha256).await?;
                self.answer(artifact, file_name, status, None)
            }
            Act::Slow { wait } => {
                tokio::time::sleep(wait.min(Duration::from_secs(3600))).await;
                self.take(case, artifact, file_name, sha256).await?
            }
            Act::Stall { wait } => {
                // Logged before the wait: the caller may be gone after it.
                let answer = self.answer(artifact, file_name, 503, None);
                tokio::time::sleep(wait.min(Duration::from_secs(3600))).await;
                answer
            }
            Act::HangUp => {
                self.attach_now(case, artifact, file_name, sha256).await?;
                self.answer(artifact, file_name, 0, None);
                Reaction::HangUp
            }
        })
    }

    async fn take(
        &self,
        case: Uuid,
        artifact: Uuid,
        file_name: &str,
        sha256: &str,
    ) -> Result<Reaction, sqlx::Error> {
        let new = self.attach_now(case, artifact, file_name, sha256).await?;
        let status = if new { 201 } else { 409 };
        Ok(self.answer(artifact, file_name, status, None))
    }

    fn answer(&self, artifact: Uuid, file_name: &str, status: u16, wait: Option<u64>) -> Reaction {
        self.ledger(|ledger| {
            let attached = ledger.attached.contains_key(&artifact);
            ledger.calls.push(Call {
                artifact_id: artifact,
                file_name: file_name.to_owned(),
                status,
                attached,
            });
        });
        Reaction::Status(status, wait)
    }

    /// Says whether it is new.
    async fn attach_now(
        &self,
        case: Uuid,
        artifact: Uuid,
        file_name: &str,
        sha256: &str,
    ) -> Result<bool, sqlx::Error> {
        match &self.memory {
            Memory::Ours(ledger) => {
                let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
                if ledger.attached.contains_key(&artifact) {
                    return Ok(false);
                }
                let evidence = Evidence {
                    case_id: case,
                    file_name: file_name.to_owned(),
                    sha256: sha256.to_owned(),
                    attached: 1,
                };
                ledger.attached.insert(artifact, evidence);
                Ok(true)
            }
            Memory::Database(pool) => {
                let done = sqlx::query(ATTACH)
                    .bind(artifact)
                    .bind(case)
                    .bind(file_name)
                    .bind(sha256)
                    .execute(pool)
                    .await?;
                Ok(done.rows_affected() > 0)
            }
        }
    }

    pub(super) async fn known(&self, case: Uuid, artifact: Uuid) -> Result<bool, sqlx::Error> {
        match &self.memory {
            Memory::Ours(ledger) => {
                let ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
                let evidence = ledger.attached.get(&artifact);
                Ok(evidence.is_some_and(|evidence| evidence.case_id == case))
            }
            Memory::Database(pool) => {
                sqlx::query_scalar(KNOWN)
                    .bind(artifact)
                    .bind(case)
                    .fetch_one(pool)
                    .await
            }
        }
    }
}

impl CaseApi for PaperCases {
    fn name(&self) -> &'static str {
        "paper"
    }

    fn attach(&self, upload: Upload) -> BoxFuture<'_, Result<(), Refusal>> {
        async move {
            let sha256 = digest(upload.content).await?;
            let reaction = self
                .receive(
                    upload.case_id,
                    upload.artifact_id,
                    &upload.file_name,
                    &sha256,
                )
                .await
                .map_err(|error| away(&error))?;
            match reaction {
                Reaction::Status(200..=299 | 409, _) => Ok(()),
                Reaction::Status(status, wait) => {
                    Err(Refusal::status(status, wait.map(Duration::from_secs)))
                }
                Reaction::HangUp => {
                    let message = "it broke the connection";
                    Err(Refusal::lost(Code::NetworkTimeout, message))
                }
            }
        }
        .boxed()
    }

    fn look_up(&self, case: Uuid, artifact: Uuid) -> BoxFuture<'_, Result<bool, Refusal>> {
        async move {
            let known = self.known(case, artifact).await;
            known.map_err(|error| away(&error))
        }
        .boxed()
    }
}

async fn digest(content: Content) -> Result<String, Refusal> {
    let mut hash = Sha256::new();
    match content {
        Content::Whole(bytes) => hash.update(&bytes),
        Content::Pieces(mut pieces) => {
            while let Some(piece) = pieces.next().await {
                hash.update(&piece.map_err(|e| Refusal::lost(Code::SystemError, e))?);
            }
        }
    }
    Ok(hex::encode(hash.finalize()))
}

/// The API's own database is away: for us that is an API that does not answer.
fn away(error: &sqlx::Error) -> Refusal {
    Refusal::lost(Code::NetworkTimeout, error)
}
