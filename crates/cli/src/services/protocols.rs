//! How protocols plug into the program.

use std::sync::Arc;

use axum::extract::FromRef;
use postrider_protocols::{
    Protocols, cleaning,
    document::{self, Documents, PdfReader},
    model::Step,
    settings::Service as StageService,
    stage::{BuiltInExtraction, BuiltInGrounding, HttpStage, Stage, vocabulary::Vocabulary},
    worker::{self, Stages},
};

use super::{Part, Service};
use crate::{
    config::Config,
    exit::{Exit, Failure},
    http::State,
    roles::{Resources, Role},
};

/// The words that make this program the reader of one PDF.
pub const PDF_READER: &[&str] = &["pdf-text"];

pub(super) const SERVICE: Service = Service {
    name: "protocols",
    migrations: postrider_protocols::migrations,
    codes: postrider_protocols::codes::ALL,
    tables: &[&postrider_protocols::OUTBOX],
    checks: postrider_protocols::CHECKS,
    trail: |apis, id| super::by_uuid(id, |id| apis.protocols.trail(id)),
    parts,
    register: postrider_protocols::counters::register,
    readings: |pool| Box::pin(cleaning::readings(pool)),
};

impl FromRef<State> for Protocols {
    fn from_ref(state: &State) -> Self {
        state.apis.protocols.clone()
    }
}

fn parts(ground: &Resources, config: &Config) -> Result<Vec<Part>, Failure> {
    let settings = &config.protocols;
    let breaker = settings.breaker.over(config.breaker);
    let reader = PdfReader::this_program(PDF_READER, settings.pdf)
        .map_err(|e| Failure::caused(Exit::Failed, "the program can't find itself", &e))?;
    let store_breaker = ground.breakers.get_with(document::DEPENDENCY, breaker);
    let documents = Documents::new(ground.store.clone(), store_breaker, reader);
    let stages = Stages {
        extraction: match remote(config, Step::Extraction, &settings.stages.extraction)? {
            Some(stage) => stage,
            None => Arc::new(BuiltInExtraction),
        },
        grounding: match remote(config, Step::Grounding, &settings.stages.grounding)? {
            Some(stage) => stage,
            None => Arc::new(BuiltInGrounding::new(vocabulary(config)?)),
        },
    };
    let worker = worker::worker(
        ground.pool.clone(),
        settings,
        documents,
        stages,
        &ground.breakers,
        breaker,
    )
    .map_err(|e| Failure::caused(Exit::Config, "protocols can't be worked on", &e))?;
    let (pool, stop) = (&ground.pool, &ground.stop);
    let archive = cleaning::archive(
        pool.clone(),
        settings.archive_after,
        settings.retention,
        stop.clone(),
    );
    let tidy = cleaning::tidy(pool.clone(), ground.store.clone(), stop.clone());
    Ok(vec![
        Part::new(
            Role::Worker,
            worker.with_pool(&ground.side).run(stop.clone()),
        ),
        Part::new(Role::Scheduler, archive),
        Part::new(Role::Scheduler, tidy),
    ])
}

/// The stage behind HTTP, if one is configured.
fn remote(
    config: &Config,
    step: Step,
    service: &StageService,
) -> Result<Option<Arc<dyn Stage>>, Failure> {
    let stage = HttpStage::new(step, service, config.protocols.stages.timeout)
        .map_err(|e| Failure::caused(Exit::Config, "a stage service can't be called", &e))?;
    Ok(stage.map(|stage| Arc::new(stage) as Arc<dyn Stage>))
}

fn vocabulary(config: &Config) -> Result<Vocabulary, Failure> {
    match &config.protocols.vocabulary {
        Some(path) => Vocabulary::open(path),
        None => Vocabulary::ours(),
    }
    .map_err(|e| Failure::caused(Exit::Config, "protocols.vocabulary", &e))
}
