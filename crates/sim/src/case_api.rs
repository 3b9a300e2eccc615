//! A simulated Case API: one artifact is attached once, however often it is sent.
//!
//! `PUT` and `GET /cases/{case_id}/evidence/{artifact_id}` are the API; `GET /evidence` lists what is attached,
//! `GET /calls` every upload, `DELETE /cases/{case_id}` deletes a case, and `PUT /script` replaces its fault script.
//! It also implements [`CaseApi`] directly, for tests without a socket.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, Request, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{delete, get, put},
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use postrider_evidence::{
    cases::{CaseApi, Content, Refusal, Upload},
    model::Code,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{
    Action, Call, FaultScript, Rule,
    faults::{delay, hang_up, status},
    lock,
};

/// The header with the file's name, percent-encoded.
const FILE_NAME: &str = "x-file-name";
/// The header with the SHA-256 of the content, in hexadecimal.
const FILE_SHA256: &str = "x-file-sha256";

/// A file that is attached to a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedFile {
    /// The case.
    pub case_id: Uuid,
    /// Its name.
    pub file_name: String,
    /// The SHA-256 of its content, in hexadecimal.
    pub sha256: String,
    /// How often it was attached: more than once is a fault of the caller.
    pub attached: u32,
}

/// An upload, as the API recorded it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedCall {
    /// The artifact.
    pub artifact_id: Uuid,
    /// The file's name.
    pub file_name: String,
    /// The HTTP status of the answer; 0 if there was none.
    pub status: u16,
    /// Is the file attached after this call?
    pub attached: bool,
}

#[derive(Default)]
struct Records {
    attached: BTreeMap<Uuid, AttachedFile>,
    forgotten: BTreeSet<Uuid>,
    calls: Vec<RecordedCall>,
    calls_by_artifact: BTreeMap<Uuid, u32>,
    deleted_cases: BTreeSet<Uuid>,
}

/// A Case API that accepts every file unless its script says otherwise.
#[derive(Default)]
pub struct SimulatedCaseApi {
    script: FaultScript,
    records: Mutex<Records>,
}

/// A file whose content is read and hashed.
struct HashedFile {
    case_id: Uuid,
    artifact_id: Uuid,
    name: String,
    sha256: String,
}

/// What the API answers to an upload.
enum Answer {
    Status(u16, Option<u64>),
    HangUp,
}

impl SimulatedCaseApi {
    /// A Case API with injected faults as this script says.
    #[must_use]
    pub fn new(script: FaultScript) -> Self {
        Self {
            script,
            records: Mutex::default(),
        }
    }

    /// Its fault script.
    #[must_use]
    pub const fn script(&self) -> &FaultScript {
        &self.script
    }

    /// Every attached file, by artifact.
    #[must_use]
    pub fn attached(&self) -> BTreeMap<Uuid, AttachedFile> {
        lock(&self.records).attached.clone()
    }

    /// Every upload so far.
    #[must_use]
    pub fn calls(&self) -> Vec<RecordedCall> {
        lock(&self.records).calls.clone()
    }

    /// Deletes a case: uploads to it get a 404.
    pub fn delete_case(&self, case: Uuid) {
        lock(&self.records).deleted_cases.insert(case);
    }

    async fn receive(&self, file: &HashedFile) -> Answer {
        let number = {
            let mut records = lock(&self.records);
            let calls = records
                .calls_by_artifact
                .entry(file.artifact_id)
                .or_default();
            *calls += 1;
            let number = *calls;
            if records.deleted_cases.contains(&file.case_id) {
                drop(records);
                return self.answer(file, 404, None);
            }
            number
        };
        let action = self.script.decide(&Call {
            file_name: Some(&file.name),
            case_id: Some(file.case_id),
            number,
            ..Call::default()
        });
        match action {
            Action::Accept => self.accept(file),
            Action::Reject { .. } | Action::NotOk { .. } => self.answer(file, 422, None),
            Action::Fail {
                status,
                retry_after,
            } => self.answer(file, status, retry_after),
            Action::FailAfter { status } => {
                self.attach_file(file);
                self.answer(file, status, None)
            }
            Action::Slow { delay: wait } => {
                delay(wait).await;
                self.accept(file)
            }
            Action::Stall { delay: wait } => {
                // Recorded before the delay: the caller may have gone by then.
                let answer = self.answer(file, 503, None);
                delay(wait).await;
                answer
            }
            Action::HangUp => {
                self.attach_file(file);
                self.answer(file, 0, None);
                Answer::HangUp
            }
            Action::Forget => {
                lock(&self.records).forgotten.insert(file.artifact_id);
                self.accept(file)
            }
        }
    }

    fn accept(&self, file: &HashedFile) -> Answer {
        let status = if self.attach_file(file) { 201 } else { 409 };
        self.answer(file, status, None)
    }

    /// Attaches a file; false if it was attached before.
    fn attach_file(&self, file: &HashedFile) -> bool {
        let attached = &mut lock(&self.records).attached;
        if attached.contains_key(&file.artifact_id) {
            return false;
        }
        let evidence = AttachedFile {
            case_id: file.case_id,
            file_name: file.name.clone(),
            sha256: file.sha256.clone(),
            attached: 1,
        };
        attached.insert(file.artifact_id, evidence);
        true
    }

    /// Records the answer to an upload.
    fn answer(&self, file: &HashedFile, status: u16, retry_after: Option<u64>) -> Answer {
        let mut records = lock(&self.records);
        let attached = records.attached.contains_key(&file.artifact_id);
        records.calls.push(RecordedCall {
            artifact_id: file.artifact_id,
            file_name: file.name.clone(),
            status,
            attached,
        });
        Answer::Status(status, retry_after)
    }

    fn has(&self, case: Uuid, artifact: Uuid) -> bool {
        let records = lock(&self.records);
        let file = records.attached.get(&artifact);
        file.is_some_and(|file| file.case_id == case) && !records.forgotten.contains(&artifact)
    }
}

impl CaseApi for SimulatedCaseApi {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn attach(&self, upload: Upload) -> BoxFuture<'_, Result<(), Refusal>> {
        async move {
            let file = HashedFile {
                case_id: upload.case_id,
                artifact_id: upload.artifact_id,
                name: upload.file_name,
                sha256: digest(upload.content).await?,
            };
            match self.receive(&file).await {
                Answer::Status(200..=299 | 409, _) => Ok(()),
                Answer::Status(status, wait) => {
                    Err(Refusal::status(status, wait.map(Duration::from_secs)))
                }
                Answer::HangUp => {
                    let message = "the simulated Case API broke the connection";
                    Err(Refusal::lost(Code::NetworkTimeout, message))
                }
            }
        }
        .boxed()
    }

    fn look_up(&self, case: Uuid, artifact: Uuid) -> BoxFuture<'_, Result<bool, Refusal>> {
        async move { Ok(self.has(case, artifact)) }.boxed()
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

/// The routes of a simulated Case API.
pub fn routes(cases: Arc<SimulatedCaseApi>) -> Router {
    Router::new()
        .route(
            "/cases/{case_id}/evidence/{artifact_id}",
            put(attach).get(has),
        )
        .route("/cases/{case_id}", delete(delete_case))
        .route("/evidence", get(list_evidence))
        .route("/calls", get(list_calls))
        .route("/script", put(replace_script))
        .layer(DefaultBodyLimit::disable())
        .with_state(cases)
}

async fn attach(
    State(cases): State<Arc<SimulatedCaseApi>>,
    Path((case_id, artifact_id)): Path<(Uuid, Uuid)>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let mut hash = Sha256::new();
    let mut chunks = request.into_body().into_data_stream();
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(chunk) => hash.update(&chunk),
            Err(_) => return StatusCode::BAD_REQUEST.into_response(),
        }
    }
    let sha256 = hex::encode(hash.finalize());
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if header(FILE_SHA256).is_some_and(|expected| expected != sha256) {
        return StatusCode::UNPROCESSABLE_ENTITY.into_response();
    }
    let encoded = header(FILE_NAME).unwrap_or_default();
    let name = url::form_urlencoded::parse(encoded.as_bytes()).next();
    let file = HashedFile {
        case_id,
        artifact_id,
        name: name.map_or_else(String::new, |(name, _)| name.into_owned()),
        sha256,
    };
    match cases.receive(&file).await {
        Answer::HangUp => hang_up(),
        Answer::Status(code, retry_after) => status(code, retry_after),
    }
}

async fn has(
    State(cases): State<Arc<SimulatedCaseApi>>,
    Path((case, artifact)): Path<(Uuid, Uuid)>,
) -> StatusCode {
    if cases.has(case, artifact) {
        StatusCode::OK
    } else {
        StatusCode::NOT_FOUND
    }
}

async fn delete_case(
    State(cases): State<Arc<SimulatedCaseApi>>,
    Path(case): Path<Uuid>,
) -> StatusCode {
    cases.delete_case(case);
    StatusCode::NO_CONTENT
}

async fn list_evidence(State(cases): State<Arc<SimulatedCaseApi>>) -> Json<Value> {
    Json(json!({ "evidence": cases.attached() }))
}

async fn list_calls(State(cases): State<Arc<SimulatedCaseApi>>) -> Json<Value> {
    Json(json!({ "calls": cases.calls() }))
}

async fn replace_script(
    State(cases): State<Arc<SimulatedCaseApi>>,
    Json(rules): Json<Vec<Rule>>,
) -> StatusCode {
    cases.script.replace(rules);
    StatusCode::NO_CONTENT
}
