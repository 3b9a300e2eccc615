//! Word lists that identify sections. `|` separates the entries of a list.

/// Words that may precede "inclusion criteria".
pub(super) const QUALIFIERS: &str = concat!(
    "key|main|major|principal|general|specific|core|additional|study|patient|patients|subject|subjects|",
    "participant|participants|primary|overall|the|other|common|trial|clinical|detailed|summary|of|list|",
    "for|all|cohort|part|arm|group|phase|a|b|c|1|2|3|i|ii|iii|safety|efficacy|screening|medical|",
    "important|protocol",
);

/// Words that may follow "inclusion criteria" in a heading.
pub(super) const CONTINUATIONS: &str = concat!(
    "for|of|in|at|cohort|part|arm|group|phase|are|include|includes|continued|cont|all|only|must|cohorts|",
    "patients|participants|subjects|both|any|checklist|and|list",
);

/// Words for participants.
pub(super) const PEOPLE: &str = concat!(
    "patient|subject|participant|individual|child|adult|person|people|volunteer|women|men |candidate|",
    "infant|donor|those who|anyone|you ",
);

/// Phrases about exclusion.
pub(super) const EXCLUSION_PHRASES: &str = concat!(
    "not eligible|ineligible|be excluded|are excluded|is excluded|excluded if|excluded from|must not|",
    "may not|cannot participate|can not participate|not be eligible|not be included|not be enrolled|",
    "not be enroled|not meet any|none of the following|exclusion criteria|not participate|not take part|",
    "will exclude",
);

/// Phrases about inclusion.
pub(super) const INCLUSION_PHRASES: &str = concat!(
    "eligible|be included|are included|must meet|must fulfil|must satisfy|must have all|",
    "inclusion criteria|be enrolled|be enroled|may participate|can participate|may take part|",
    "can take part|meet all|fulfil all|fulfill all|satisfy all|all of the following",
);

/// Titles of sections that usually follow the criteria.
pub(super) const FOLLOWING_TITLES: &str = concat!(
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

/// Is this word in the list?
pub(super) fn is_listed(list: &str, word: &str) -> bool {
    list.split('|').any(|known| known == word)
}

/// Does the text contain an entry of the list?
pub(super) fn contains_any(text: &str, list: &str) -> bool {
    list.split('|').any(|words| text.contains(words))
}

/// Does the text start with an entry of the list?
pub(super) fn starts_with_any(text: &str, list: &str) -> bool {
    list.split('|').any(|words| text.starts_with(words))
}
