//! From the file as written to rules that are consistent in themselves.

mod network;

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;

use toml::Spanned;

use super::bounds::{self, Bounds, LEAST_TASKS, Size};
use super::error::{PolicyError, position};
use super::file::{self, Op};
use super::{
    Comparison, Condition, EnvironmentRule, FORMAT_VERSION, LogRule, LogSource, PathRule,
    PathTemplate, Policy, RlimitRule, ScopeRule, SocketRules, SyscallRule, TextTemplate, Width,
    secrets,
};

/// Landlock's ABIs that have TCP rules, scopes, and flags for its log (landlock(7)).
const TCP_ABI: u32 = 4;
const SCOPE_ABI: u32 = 6;
const LOG_ABI: u32 = 7;

/// Tests of one rule: as many as a filter's short jumps span.
const MAX_TESTS: usize = 16;

/// Checks one text; knows where in it everything was.
pub(super) struct Checker<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
}

type Checked<T> = Result<T, PolicyError>;

// === impl Checker ===

impl<'a> Checker<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let line_starts =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, line_starts }
    }

    pub(super) fn policy(&self, mut file: file::File, revision: String) -> Checked<Policy> {
        if *file.version.get_ref() != FORMAT_VERSION {
            return Err(self.wrong(
                &file.version,
                format!("this casemate reads policy version {FORMAT_VERSION}: write version = {FORMAT_VERSION}"),
            ));
        }
        if file.name.get_ref().trim().is_empty() {
            return Err(self.wrong(&file.name, "the name is empty: give the policy one"));
        }
        self.abi(&file)?;
        let egress = self.egress(file.egress.take(), std::mem::take(&mut file.host))?;
        self.none_is_none(egress.as_ref(), &file)?;
        self.udp_is_restricted(&file)?;
        let sockets_line = self.line(&file.sockets);
        let (landlock, sockets) = (file.landlock.into_inner(), file.sockets.into_inner());
        self.reason(landlock.reason)?;
        let sockets_reason = self.reason(sockets.reason)?;
        let (bounds, bounds_reason) = self.bounds(file.bounds)?;
        Ok(Policy {
            revision,
            name: file.name.into_inner(),
            tier: file.tier,
            landlock_abi: landlock.abi.into_inner(),
            paths: self.paths(file.path)?,
            tcp: file.tcp.into_iter().map(|rule| self.ports(rule)).collect::<Checked<_>>()?,
            udp: file.udp.into_iter().map(|rule| self.ports(rule)).collect::<Checked<_>>()?,
            egress,
            scopes: self.scopes(file.scope)?,
            syscalls: file
                .syscall
                .into_iter()
                .map(|rule| self.syscall(rule))
                .collect::<Checked<_>>()?,
            sockets: SocketRules {
                errno: sockets.errno,
                reason: sockets_reason,
                line: sockets_line,
                allow: file
                    .socket
                    .into_iter()
                    .map(|rule| self.socket(rule))
                    .collect::<Checked<_>>()?,
            },
            environment: self.environment(file.environment)?,
            rlimits: self.rlimits(file.rlimit)?,
            log: file.log.map(|rule| self.log(rule)).transpose()?,
            bounds,
            bounds_reason,
            denials: file.denials,
            learning: file.learning,
        })
    }

    /// A requirement below what the rules need would be a promise that an old kernel silently breaks. TCP rules are
    /// always needed: a port that is not named is refused.
    fn abi(&self, file: &file::File) -> Checked<()> {
        let abi = &file.landlock.get_ref().abi;
        let log = file.log.as_ref().map(Spanned::get_ref);
        let must_log = log
            .is_some_and(|log| log.required && log.what.get_ref().contains(&LogSource::Landlock));
        let needed = match () {
            () if must_log => LOG_ABI,
            () if !file.scope.is_empty() => SCOPE_ABI,
            () => TCP_ABI,
        };
        if *abi.get_ref() < needed {
            return Err(self.wrong(
                abi,
                format!("these rules need Landlock ABI {needed}: write abi = {needed}"),
            ));
        }
        Ok(())
    }

    fn paths(&self, rules: Vec<Spanned<file::Path>>) -> Checked<Vec<PathRule>> {
        let mut seen = HashMap::new();
        let mut checked = Vec::with_capacity(rules.len());
        for rule in rules {
            let line = self.line(&rule);
            let file::Path { path, access, required, tier, reason } = rule.into_inner();
            let template =
                PathTemplate::parse(path.get_ref()).map_err(|why| self.wrong(&path, why))?;
            self.no_secret(&path, &template)?;
            self.once(&mut seen, (template.clone(), tier), &path, &format!("path {template}"))?;
            if access.get_ref().is_empty() {
                return Err(self.wrong(&access, "access is empty: name a right or remove the rule"));
            }
            let mut rights = access.get_ref().clone();
            rights.sort_unstable();
            rights.dedup();
            if rights.len() != access.get_ref().len() {
                return Err(self.wrong(&access, "access names a right twice: name it once"));
            }
            let reason = self.reason(reason)?;
            checked.push(PathRule { path: template, access: rights, required, tier, reason, line });
        }
        Ok(checked)
    }

    /// Told here where a name says it, with its line, on whatever machine the file is read.
    fn no_secret(&self, path: &Spanned<String>, template: &PathTemplate) -> Checked<()> {
        let named = Path::new(&template.rest);
        if template.place.is_some() {
            return Ok(());
        }
        if let Some(place) = secrets::holding(named) {
            let why = format!(
                "path {template} would grant keys and tokens, which lie in {place}, and no agent may have those: remove the rule, \
                 and hand over a single value with --env"
            );
            return Err(self.wrong(path, why));
        }
        if let Some(place) = secrets::below(named) {
            let why = format!(
                "path {template} would grant {place} with it, where secrets are mounted: nothing in a granted directory can be \
                 closed again, so name what is needed beside it"
            );
            return Err(self.wrong(path, why));
        }
        Ok(())
    }

    fn scopes(&self, rules: Vec<Spanned<file::ScopeEntry>>) -> Checked<Vec<ScopeRule>> {
        let mut seen = HashMap::new();
        let mut checked = Vec::with_capacity(rules.len());
        for rule in rules {
            let line = self.line(&rule);
            let file::ScopeEntry { kind, reason } = rule.into_inner();
            self.once(&mut seen, *kind.get_ref(), &kind, "this scope")?;
            let reason = self.reason(reason)?;
            checked.push(ScopeRule { kind: kind.into_inner(), reason, line });
        }
        Ok(checked)
    }

    fn syscall(&self, rule: Spanned<file::Syscall>) -> Checked<SyscallRule> {
        let line = self.line(&rule);
        let file::Syscall { names, errno, when, reason } = rule.into_inner();
        if names.get_ref().is_empty() {
            return Err(self.wrong(&names, "names is empty: name a system call or remove the rule"));
        }
        if names.get_ref().iter().any(|name| name == "socket" || name == "socketpair") {
            return Err(
                self.wrong(&names, "sockets are refused by default: use [[socket]] to allow some")
            );
        }
        if let Some(extra) = when.get(MAX_TESTS) {
            return Err(self.wrong(extra, format!("more than {MAX_TESTS} tests: split the rule")));
        }
        let when = when.iter().map(|when| self.condition(when)).collect::<Checked<_>>()?;
        Ok(SyscallRule {
            names: names.into_inner(),
            errno,
            when,
            reason: self.reason(reason)?,
            line,
        })
    }

    fn condition(&self, when: &Spanned<file::When>) -> Checked<Condition> {
        let file::When { arg, bits, op, value, mask } = when.get_ref();
        if *arg > 5 {
            return Err(self.wrong(when, "a system call has arguments 0 to 5: correct arg"));
        }
        let width = match bits {
            32 => Width::Bits32,
            64 => Width::Bits64,
            _ => {
                return Err(
                    self.wrong(when, "bits is 32 (int, pid_t) or 64 (long, pointers): correct it")
                );
            }
        };
        let number = |number: i64| self.number(when, width, number);
        let value = number(*value)?;
        let comparison = match (op, mask) {
            (Op::MaskedEqual, Some(mask)) => {
                let mask = number(*mask)?;
                if value & !mask != 0 {
                    return Err(self.wrong(
                        when,
                        "value has bits outside mask, so it never matches: correct one",
                    ));
                }
                Comparison::MaskedEqual { mask, value }
            }
            (Op::MaskedEqual, None) => {
                return Err(self.wrong(when, "masked-equal needs a mask: add mask = ..."));
            }
            (_, Some(_)) => {
                return Err(self.wrong(when, "mask is for op = \"masked-equal\" only: remove it"));
            }
            (Op::Equal, None) => Comparison::Equal(value),
            (Op::NotEqual, None) => Comparison::NotEqual(value),
            (Op::Less, None) => Comparison::Less(value),
            (Op::Greater, None) => Comparison::Greater(value),
            (Op::AnyBits, None) if value == 0 => {
                return Err(self.wrong(when, "any-bits of 0 never matches: name the bits"));
            }
            (Op::AnyBits, None) => Comparison::AnyBits(value),
        };
        Ok(Condition { argument: *arg, width, comparison })
    }

    /// TOML has signed numbers only; a negative one means its two's complement of the argument's width.
    fn number(&self, at: &Spanned<file::When>, width: Width, number: i64) -> Checked<u64> {
        match width {
            Width::Bits64 => Ok(number.cast_unsigned()),
            Width::Bits32 => u32::try_from(number)
                .ok()
                .or_else(|| i32::try_from(number).ok().map(i32::cast_unsigned))
                .map(u64::from)
                .ok_or_else(|| {
                    self.wrong(at, "the number does not fit 32 bits: use bits = 64 or correct it")
                }),
        }
    }

    fn environment(&self, rules: Vec<Spanned<file::Environment>>) -> Checked<Vec<EnvironmentRule>> {
        let mut seen = HashMap::new();
        let mut checked = Vec::with_capacity(rules.len());
        for rule in rules {
            if rule.get_ref().pass.is_empty() && rule.get_ref().set.is_empty() {
                return Err(
                    self.wrong(&rule, "this rule names no variable: add pass or set, or remove it")
                );
            }
            let line = self.line(&rule);
            let file::Environment { pass, set, reason } = rule.into_inner();
            for name in &pass {
                self.variable(&mut seen, name.get_ref(), name)?;
            }
            let mut templates = Vec::with_capacity(set.len());
            for (name, value) in set {
                self.variable(&mut seen, &name, &value)?;
                let template =
                    TextTemplate::parse(value.get_ref()).map_err(|why| self.wrong(&value, why))?;
                templates.push((name, template));
            }
            checked.push(EnvironmentRule {
                pass: pass.into_iter().map(Spanned::into_inner).collect(),
                set: templates,
                reason: self.reason(reason)?,
                line,
            });
        }
        Ok(checked)
    }

    fn variable(
        &self,
        seen: &mut HashMap<String, usize>,
        name: &str,
        at: &Spanned<String>,
    ) -> Checked<()> {
        let mut characters = name.chars();
        let starts_well = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if !starts_well || !characters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(self.wrong(
                at,
                format!("\"{name}\" is not a variable's name: use letters, digits and _"),
            ));
        }
        self.once(seen, name.to_owned(), at, &format!("variable {name}"))
    }

    fn rlimits(&self, rules: Vec<Spanned<file::Rlimit>>) -> Checked<Vec<RlimitRule>> {
        let mut seen = HashMap::new();
        let mut checked = Vec::with_capacity(rules.len());
        for rule in rules {
            let line = self.line(&rule);
            let file::Rlimit { resource, soft, hard, reason } = rule.into_inner();
            self.once(&mut seen, *resource.get_ref(), &resource, "this resource")?;
            let (soft_limit, hard_limit) = (self.limit(&soft)?, self.limit(&hard)?);
            if soft_limit.unwrap_or(u64::MAX) > hard_limit.unwrap_or(u64::MAX) {
                return Err(self.wrong(&soft, "the soft limit is above the hard one: lower it"));
            }
            let resource = resource.into_inner();
            checked.push(RlimitRule {
                resource,
                soft: soft_limit,
                hard: hard_limit,
                reason: self.reason(reason)?,
                line,
            });
        }
        Ok(checked)
    }

    fn bounds(&self, table: Option<Spanned<bounds::File>>) -> Checked<(Bounds, String)> {
        let default = Bounds::default();
        let Some(table) = table else { return Ok((default, String::new())) };
        let line = Some(self.line(&table));
        let bounds::File { processes, disk, files, reason } = table.into_inner();
        let reason = self.reason(reason)?;
        let processes = match processes {
            None => default.processes,
            Some(value) => match self.limit(&value)?.map(u32::try_from).transpose() {
                Ok(Some(tasks)) if tasks < LEAST_TASKS => {
                    let least = format!("too few to work with: write at least {LEAST_TASKS}");
                    return Err(self.wrong(&value, least));
                }
                Ok(tasks) => tasks,
                Err(_) => return Err(self.wrong(&value, "not a limit: write a smaller number")),
            },
        };
        let disk = match disk {
            None => default.disk,
            Some(value) => match value.get_ref().as_str() {
                Some("unlimited") => None,
                text => Some(text.and_then(Size::parse).map(|size| size.0).ok_or_else(|| {
                    self.wrong(
                        &value,
                        "not a size: write \"20GiB\" (KiB, MiB, TiB) or \"unlimited\"",
                    )
                })?),
            },
        };
        let files = files.map_or(Ok(default.files), |value| self.limit(&value))?;
        Ok((Bounds { processes, disk, files, line }, reason))
    }

    fn limit(&self, value: &Spanned<toml::Value>) -> Checked<Option<u64>> {
        match value.get_ref() {
            toml::Value::String(word) if word == "unlimited" => Ok(None),
            toml::Value::Integer(number) if *number >= 0 => Ok(Some(number.cast_unsigned())),
            _ => Err(self.wrong(value, "not a limit: write a number from 0 on, or \"unlimited\"")),
        }
    }

    fn log(&self, rule: Spanned<file::Log>) -> Checked<LogRule> {
        let line = self.line(&rule);
        let file::Log { what, required, reason } = rule.into_inner();
        let what = self.each_once(&what, "what")?;
        Ok(LogRule { what, required, reason: self.reason(reason)?, line })
    }

    /// The words of a list, sorted: at least one, none twice.
    fn each_once<T: Ord + Clone>(&self, list: &Spanned<Vec<T>>, name: &str) -> Checked<Vec<T>> {
        let mut words = list.get_ref().clone();
        words.sort_unstable();
        words.dedup();
        if words.is_empty() || words.len() != list.get_ref().len() {
            return Err(self.wrong(
                list,
                format!(
                    "{name} is empty or names something twice: name each once, or leave it out"
                ),
            ));
        }
        Ok(words)
    }

    fn reason(&self, reason: Spanned<String>) -> Checked<String> {
        if reason.get_ref().trim().is_empty() {
            return Err(self.wrong(&reason, "the reason is empty: say why this rule exists"));
        }
        Ok(reason.into_inner())
    }

    fn once<K: Eq + Hash, T>(
        &self,
        seen: &mut HashMap<K, usize>,
        key: K,
        at: &Spanned<T>,
        what: &str,
    ) -> Checked<()> {
        let line = self.line(at);
        match seen.insert(key, line) {
            None => Ok(()),
            Some(first) => {
                Err(self
                    .wrong(at, format!("{what} was named in line {first} already: merge the two")))
            }
        }
    }

    fn line<T>(&self, at: &Spanned<T>) -> usize {
        self.line_starts.partition_point(|start| *start <= at.span().start)
    }

    fn wrong<T>(&self, at: &Spanned<T>, message: impl Into<String>) -> PolicyError {
        debug_assert_eq!(position(self.text, at.span().start).0, self.line(at));
        PolicyError::at(self.text, at.span().start, message)
    }
}
