//! Starts protocols: the API and the background tasks, from the configuration.

use std::sync::Arc;

use postrider_protocols::{
    Protocols, cleaning,
    document::{self, Documents, PdfReader},
    model::Step,
    settings::Service as StageService,
    stage::{BuiltInExtraction, BuiltInGrounding, HttpStage, Stage, vocabulary::Vocabulary},
    worker::{self, Stages},
};

use super::Start;
use crate::{
    config::Config,
    exit::{Exit, Failure},
    roles::{Resources, Role, Task},
};

/// The command that makes this program read one PDF.
pub const PDF_READER: &[&str] = &["pdf-text"];

/// Starts the API.
pub(super) fn start(start: &Start<'_>) -> Result<Protocols, Failure> {
    let (pool, store) = (start.pool.clone(), start.store.clone());
    Ok(Protocols::start(pool, store, &start.config.protocols))
}

pub(super) fn tasks(resources: &Resources, config: &Config) -> Result<Vec<Task>, Failure> {
    let settings = &config.protocols;
    let breaker = settings.breaker.over(config.breaker);
    let reader = PdfReader::this_program(PDF_READER, settings.pdf)
        .map_err(|e| Failure::caused(Exit::Failed, "the program's own path can't be found", &e))?;
    let store_breaker = resources.breakers.get_with(document::DEPENDENCY, breaker);
    let documents = Documents::new(resources.store.clone(), store_breaker, reader);
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
        resources.pool.clone(),
        settings,
        documents,
        stages,
        &resources.breakers,
        breaker,
    )
    .map_err(|e| Failure::caused(Exit::Config, "the protocols worker can't be started", &e))?;
    let (pool, stop) = (&resources.pool, &resources.stop);
    let archive = cleaning::archive(
        pool.clone(),
        settings.archive_after,
        settings.retention,
        stop.clone(),
    );
    let tidy = cleaning::remove_orphans(pool.clone(), resources.store.clone(), stop.clone());
    Ok(vec![
        Task::new(
            Role::Worker,
            worker.with_pool(&resources.worker_pool).run(stop.clone()),
        ),
        Task::new(Role::Scheduler, archive),
        Task::new(Role::Scheduler, tidy),
    ])
}

/// The stage behind HTTP, if one is configured.
fn remote(
    config: &Config,
    step: Step,
    service: &StageService,
) -> Result<Option<Arc<dyn Stage>>, Failure> {
    let Some(endpoint) = service.endpoint(config.protocols.stages.timeout) else {
        return Ok(None);
    };
    let stage = HttpStage::new(step, endpoint)
        .map_err(|e| Failure::caused(Exit::Config, "protocols.stages", &e))?;
    Ok(Some(Arc::new(stage)))
}

fn vocabulary(config: &Config) -> Result<Vocabulary, Failure> {
    match &config.protocols.vocabulary {
        Some(path) => Vocabulary::open(path),
        None => Vocabulary::built_in(),
    }
    .map_err(|e| Failure::caused(Exit::Config, "protocols.vocabulary", &e))
}
