//! From path rules to concrete paths: placeholders replaced, tiers applied. No IO.

use std::path::{Path, PathBuf};

use casemate_protocol::policy::{Access, PathTemplate, Place, Policy};

use super::{Places, WallError};

/// One path to be granted, existing or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) path: PathBuf,
    pub(super) access: Vec<Access>,
    pub(super) required: bool,
    /// The rule's line; `None`: from [`Places::read`].
    pub(super) line: Option<usize>,
}

/// The grants, and the rules that stand for nothing here with the reason.
pub(super) fn expand(
    policy: &Policy,
    places: &Places,
) -> Result<(Vec<Grant>, Vec<String>), WallError> {
    let mut grants = Vec::with_capacity(policy.paths.len());
    let mut skipped = Vec::new();
    for rule in &policy.paths {
        if rule.tier > places.tier {
            skipped.push(format!("{} (needs tier {})", rule.path, rule.tier));
            continue;
        }
        let paths = resolve(&rule.path, places);
        if paths.is_empty() {
            if rule.required {
                let placeholder = rule.path.to_string();
                return Err(WallError::MissingPlace { placeholder, line: rule.line });
            }
            skipped.push(format!("{} (none given)", rule.path));
        }
        grants.extend(paths.into_iter().map(|path| Grant {
            path,
            access: rule.access.clone(),
            required: rule.required,
            line: Some(rule.line),
        }));
    }
    grants.extend(places.read.iter().map(|path| Grant {
        path: path.clone(),
        access: vec![Access::Read],
        required: true,
        line: None,
    }));
    Ok((grants, skipped))
}

/// What a place stands for.
pub(super) fn stand_for(place: Place, places: &Places) -> Vec<&Path> {
    match place {
        Place::Work => vec![&places.work],
        Place::Home => vec![&places.home],
        Place::Scratch => vec![&places.scratch],
        Place::Skills => places.skills.as_deref().into_iter().collect(),
        Place::Programs => places.programs.iter().map(PathBuf::as_path).collect(),
    }
}

fn resolve(template: &PathTemplate, places: &Places) -> Vec<PathBuf> {
    let Some(place) = template.place else {
        return vec![PathBuf::from(&template.rest)];
    };
    let below = |root: &Path| match template.rest.as_str() {
        "" => root.to_path_buf(),
        rest => root.join(rest.trim_start_matches('/')),
    };
    stand_for(place, places).into_iter().map(below).collect()
}
