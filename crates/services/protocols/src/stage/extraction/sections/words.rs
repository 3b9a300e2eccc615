//! The words by which sections are known. Lists are texts with `|` between their words.

/// Words that may stand in front of "inclusion criteria".
pub(super) const QUALIFIERS: &str = concat!(
    "key|main|major|principal|general|specific|core|additional|study|patient|patients|subject|subjects|",
    "participant|participants|primary|overall|the|other|common|trial|clinical|detailed|summary|of|list|",
    "for|all|cohort|part|arm|group|phase|a|b|c|1|2|3|i|ii|iii|safety|efficacy|screening|medical|",
    "important|protocol",
);

/// Words that a heading may go on with.
pub(super) const CONTINUATIONS: &str = concat!(
    "for|of|in|at|cohort|part|arm|group|phase|are|include|includes|continued|cont|all|only|must|cohorts|",
    "patients|participants|subjects|both|any|checklist|and|list",
);

/// Whom a protocol is about.
pub(super) const PEOPLE: &str = concat!(
    "patient|subject|participant|individual|child|adult|person|people|volunteer|women|men |candidate|",
    "infant|donor|those who|anyone|you ",
);

/// Who says this speaks of exclusion.
pub(super) const OUT: &str = concat!(
    "not eligible|ineligible|be excluded|are excluded|is excluded|excluded if|excluded from|must not|",
    "may not|cannot participate|can not participate|not be eligible|not be included|not be enrolled|",
    "not be enroled|not meet any|none of the following|exclusion criteria|not participate|not take part|",
    "will exclude",
);

/// Who says this speaks of inclusion.
pub(super) const IN: &str = concat!(
    "eligible|be included|are included|must meet|must fulfil|must satisfy|must have all|",
    "inclusion criteria|be enrolled|be enroled|may participate|can participate|may take part|",
    "can take part|meet all|fulfil all|fulfill all|satisfy all|all of the following",
);

/// Titles of what usually follows the criteria.
pub(super) const FOLLOWING: &str = concat!(
    "treatment|study treatment|study procedure|study design|study intervention|study drug|",
    "study assessment|study duration|withdraw|discontinu|randomi|blinding|objective|endpoint|end point|",
    "outcome|statistic|sample size|background|schedule|concomitant|prohibited|lifestyle|screen failure|",
    "screening procedure|recruitment|investigational|dose|dosage|dosing|safety|efficacy|assessment|",
    "reference|appendix|procedure|visit|number of patients|number of subjects|number of participants|",
    "rationale|introduction|ethic|data management|adverse event|enrolment|enrollment|registration|",
    "duration of|planned|site selection|removal of|strategies for|consent process|comparator|methodology|",
    "intervention|follow-up|monitoring|premature|rescreening|re-screening|subject withdrawal|",
    "patient withdrawal|participant withdrawal|test product|subject identification",
);

/// Does the list hold this very word?
pub(super) fn has(list: &str, word: &str) -> bool {
    list.split('|').any(|known| known == word)
}

/// Does the text say something of the list?
pub(super) fn says(text: &str, list: &str) -> bool {
    list.split('|').any(|words| text.contains(words))
}

/// Does the text begin with something of the list?
pub(super) fn begins(text: &str, list: &str) -> bool {
    list.split('|').any(|words| text.starts_with(words))
}
