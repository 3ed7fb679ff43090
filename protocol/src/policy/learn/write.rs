//! A proposal as a policy file: the text that it is about, with as little changed as can be.
//!
//! Names go out of their tables, new tables and what is not proposed come at the end. What always holds: the text reads as the rules
//! say, or there is none.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Learned, Proposal, Rule, misleads};
use crate::policy::{Policy, PolicyError, file};

/// Why a proposal cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The text itself is no policy.
    #[error("the policy")]
    Policy(#[from] PolicyError),
    /// A table that is not laid out as tables are.
    #[error(
        "the [[syscall]] table in line {line} cannot be edited as it is written: take {names} out by hand"
    )]
    Table {
        /// Where it begins.
        line: usize,
        /// What is to be taken out.
        names: String,
    },
}

/// The policy's text with the proposal in it.
///
/// # Errors
/// [`WriteError`].
pub fn write(text: &str, proposal: &Proposal) -> Result<String, WriteError> {
    let mut out = edited(text, &proposal.rules)?.trim_end().to_owned();
    out.push('\n');
    for rule in &proposal.rules {
        out.push('\n');
        out += &rule.text;
    }
    if !proposal.kept_out.is_empty() {
        out += "\n# Refused as well, and not proposed:\n";
        for (what, why) in &proposal.kept_out {
            let line = format!("{what}: {why}");
            out += "# ";
            out.extend(line.chars().map(|one| if misleads(one) { '?' } else { one }));
            out.push('\n');
        }
    }
    Ok(out)
}

fn edited(text: &str, rules: &[Learned]) -> Result<String, WriteError> {
    without(&wider(text, rules)?, rules)
}

/// Lists of rights that grow. They keep their lines, so that the lines of other tables stay.
fn wider(text: &str, rules: &[Learned]) -> Result<String, WriteError> {
    let (policy, tables) = (Policy::parse(text)?, tables(text)?);
    let mut out = text.to_owned();
    for (rule, table) in policy.paths.iter().zip(&tables.path).rev() {
        let mut all = rule.access.clone();
        for learned in rules {
            if let Rule::Wider { line, access } = &learned.rule
                && *line == rule.line
            {
                all.extend(access);
            }
        }
        if all.len() == rule.access.len() {
            continue;
        }
        let words: Vec<String> = all.iter().map(|access| format!("\"{access}\"")).collect();
        let span = table.get_ref().access.span();
        let lines = out[span.clone()].matches('\n').count();
        out.replace_range(span, &format!("[{}{}]", words.join(", "), "\n".repeat(lines)));
    }
    Ok(out)
}

fn tables(text: &str) -> Result<file::File, WriteError> {
    Ok(toml::from_str(text).map_err(|error| PolicyError::from_toml(text, &error))?)
}

fn without(text: &str, rules: &[Learned]) -> Result<String, WriteError> {
    let (policy, tables) = (Policy::parse(text)?, tables(text)?);
    let mut less: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for rule in rules {
        if let Rule::Without { line, name } = &rule.rule {
            less.entry(*line).or_default().push(name);
        }
    }
    let mut out = text.to_owned();
    let mut expected = policy.clone();
    // From the end, so that places before stay.
    for (rule, table) in policy.syscalls.iter().zip(&tables.syscall).rev() {
        let Some(names) = less.get(&rule.line) else { continue };
        let left: Vec<String> =
            rule.names.iter().filter(|name| !names.contains(&name.as_str())).cloned().collect();
        let entry = table.get_ref();
        let range = match left.is_empty() {
            false => entry.names.span(),
            true => whole(&out, table.span().start, entry),
        };
        let quoted: Vec<String> = left.iter().map(|name| format!("\"{name}\"")).collect();
        let list = if left.is_empty() { String::new() } else { format!("[{}]", quoted.join(", ")) };
        out.replace_range(range, &list);
        let changed = expected.syscalls.iter_mut().find(|one| one.line == rule.line);
        if let Some(changed) = changed {
            changed.names = left;
        }
        let is_right = Policy::parse(&out).is_ok_and(|found| same_calls(&found, &expected));
        if !is_right {
            return Err(WriteError::Table { line: rule.line, names: names.join(", ") });
        }
    }
    Ok(out)
}

/// From a table's head to the last line of its own; comments behind it belong to the next.
fn whole(text: &str, start: usize, table: &file::Syscall) -> Range<usize> {
    let spans = [table.names.span().end, table.reason.span().end];
    let last = table.when.iter().map(|when| when.span().end).chain(spans).max().unwrap_or(start);
    let mut end = last;
    for line in text[last..].split_inclusive('\n').scan(last, |at, line| {
        *at += line.len();
        Some((*at, line.trim()))
    }) {
        match line {
            (_, text) if text.starts_with('[') && end > last => break,
            (at, text) if end == last || !(text.is_empty() || text.starts_with('#')) => end = at,
            _ => {}
        }
    }
    // With the blank line before the next one.
    let blank = text[end..].starts_with('\n').then_some(end + 1);
    start..blank.unwrap_or(end)
}

/// Whether the call rules say the same; lines apart, and those that name nothing any more.
fn same_calls(found: &Policy, expected: &Policy) -> bool {
    let rules = |policy: &Policy| -> Vec<_> {
        let named = policy.syscalls.iter().filter(|rule| !rule.names.is_empty());
        named.map(|rule| (rule.names.clone(), rule.errno, rule.when.clone())).collect()
    };
    rules(found) == rules(expected)
        && found.rule_count() == expected.rule_count() - emptied(expected)
}

fn emptied(policy: &Policy) -> usize {
    policy.syscalls.iter().filter(|rule| rule.names.is_empty()).count()
}
