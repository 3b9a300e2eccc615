//! Evidence: archives of files for dispute cases; the Case API fails, hangs up and answers late.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Cursor, Write},
    sync::Arc,
};

use reqwest::Method;
use sha2::{Digest, Sha256};
use uuid::Uuid;
use zip::{ZipWriter, result::ZipError, write::SimpleFileOptions};

use super::{Accepted, Glance, Run, names};
use crate::{
    cli::demo::{
        checker::{Effect, Witness},
        parties::receiver::Notification,
    },
    exit::{Exit, Failure},
};

const NAME: &str = "evidence";
const A_SECOND: u64 = 5;

/// Files of one archive.
const ARCHIVE: u64 = 15;

/// A file, by case and name, and the SHA-256 that it must arrive with.
struct File {
    case: Uuid,
    name: String,
    content: String,
}

impl File {
    fn of(number: u64) -> Self {
        let case = Uuid::new_v4();
        let line = format!("Parcel {number} of case {case} was handed over and signed for.\n");
        Self {
            case,
            name: format!("receipt-{number}.txt"),
            content: line.repeat(50),
        }
    }

    fn item(&self) -> String {
        item(self.case, &self.name)
    }

    fn sha256(&self) -> String {
        hex::encode(Sha256::digest(&self.content))
    }
}

fn item(case: Uuid, name: &str) -> String {
    format!("{case}/{name}")
}

/// The act.
pub struct Evidence {
    run: Arc<Run>,
    planned: u64,
    accepted: Accepted<String>,
    jobs: Accepted<()>,
}

impl Evidence {
    pub fn new(run: Arc<Run>) -> Self {
        Self {
            planned: run.planned(A_SECOND),
            run,
            accepted: Accepted::new(),
            jobs: Accepted::new(),
        }
    }

    pub async fn ask(&self) -> Result<(), Failure> {
        let jobs = self.planned.div_ceil(ARCHIVE);
        let mut pace = self.run.pace(jobs);
        for job in 0..jobs {
            pace.tick().await;
            let numbers = job * ARCHIVE..((job + 1) * ARCHIVE).min(self.planned);
            let files: Vec<File> = numbers.map(File::of).collect();
            let archive = archive(&files)
                .map_err(|e| Failure::caused(Exit::Failed, "an archive can't be made", &e))?;
            let request = self
                .run
                .door
                .request(Method::POST, "/file-jobs?merchant_id=demo")
                .header("content-type", "application/zip")
                .body(archive);
            let calm = self.run.calm.read().await;
            let answer = self.run.door.once(request).await?;
            drop(calm);
            self.jobs
                .note(answer["file_job_id"].as_str().unwrap_or_default(), ());
            for file in files {
                self.accepted.note(file.item(), file.sha256());
            }
        }
        Ok(())
    }

    pub fn glance(&self) -> Glance {
        Glance {
            name: NAME,
            planned: self.planned,
            accepted: self.accepted.len(),
            done: self.run.parties.cases.attached().len() as u64,
            retried: self.retried() as u64,
            dead: 0,
            blocked: 0,
        }
    }

    fn retried(&self) -> usize {
        let mut calls: BTreeMap<Uuid, u32> = BTreeMap::new();
        for call in self.run.parties.cases.calls() {
            *calls.entry(call.artifact_id).or_default() += 1;
        }
        calls.values().filter(|calls| **calls > 1).count()
    }

    /// Has the merchant heard of every job for the last time?
    pub fn is_told(&self) -> bool {
        let taken = self.run.parties.receiver.taken();
        let last: BTreeSet<&String> = taken
            .iter()
            .filter(|notification| notification.kind == "evidence.n2")
            .map(|notification| &notification.job)
            .collect();
        last.len() as u64 >= self.jobs.len()
    }

    /// What the Case API has, under however many ids; and what the merchant was told.
    pub fn witness(&self) -> Witness {
        let accepted = self.accepted.all();
        let attached = self.run.parties.cases.attached();
        let effects = attached.values().map(|evidence| {
            let item = item(evidence.case_id, &evidence.file_name);
            let right = accepted.get(&item) == Some(&evidence.sha256);
            Effect { item, right }
        });
        let jobs = names(&self.jobs.all());
        Witness {
            service: NAME,
            accepted: names(&accepted),
            effects: effects.collect(),
            retried: self.retried(),
            complaints: told_wrongly(&jobs, &self.run.parties.receiver.taken()),
            ..Witness::default()
        }
    }
}

/// Every job has one N1 and one N2. The same one may come again: its id says so.
fn told_wrongly(jobs: &BTreeSet<String>, taken: &[Notification]) -> Vec<String> {
    let distinct: BTreeSet<&Notification> = taken.iter().collect();
    let mut complaints = Vec::new();
    for job in jobs {
        for kind in ["evidence.n1", "evidence.n2"] {
            let times = distinct
                .iter()
                .filter(|told| told.job == *job && told.kind == kind)
                .count();
            if times != 1 {
                complaints.push(format!("job {job} has {times} notifications {kind}"));
            }
        }
    }
    complaints
}

fn archive(files: &[File]) -> Result<Vec<u8>, ZipError> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("manifest.csv", SimpleFileOptions::default())?;
    writeln!(zip, "case_id,reference,files")?;
    for file in files {
        writeln!(zip, "{},PARCEL,{}", file.case, file.name)?;
    }
    for file in files {
        zip.start_file(&file.name, SimpleFileOptions::default())?;
        zip.write_all(file.content.as_bytes())?;
    }
    Ok(zip.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: &str, id: &str) -> Notification {
        Notification {
            job: "j".to_owned(),
            kind: format!("evidence.{kind}"),
            id: id.to_owned(),
        }
    }

    #[test]
    fn the_same_notification_may_come_again_and_another_may_not() {
        let jobs = BTreeSet::from(["j".to_owned()]);
        let well = [told("n1", "1"), told("n1", "1"), told("n2", "2")];
        assert_eq!(told_wrongly(&jobs, &well), Vec::<String>::new());
        let twice = [told("n1", "1"), told("n1", "3"), told("n2", "2")];
        assert_eq!(
            told_wrongly(&jobs, &twice),
            ["job j has 2 notifications evidence.n1"]
        );
        let never = [told("n1", "1")];
        assert_eq!(
            told_wrongly(&jobs, &never),
            ["job j has 0 notifications evidence.n2"]
        );
    }
}
