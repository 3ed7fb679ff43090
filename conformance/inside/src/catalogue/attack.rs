//! One attack as data.

use std::io;

use super::shot::Shot;

/// What an attack is aimed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Another session's files: worktree, HOME, scratch.
    Files,
    /// What git reads and runs: another session's repository, or one's own as a trap for whoever runs git there.
    Git,
    /// The files of casemate itself.
    House,
    /// Another session's processes.
    Processes,
    /// The session's own supervisor.
    Supervisor,
    /// Listeners that are not the session's.
    Network,
    /// What sessions of one user share without a path: queues, segments, keys.
    Ipc,
    /// The kernel's own ways out, and its doors that no software needs.
    Kernel,
    /// What belongs to the machine or the user as a whole.
    Machine,
}

/// What stops it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defence {
    /// Landlock's rules for files.
    FileRules,
    /// Landlock's rules for TCP ports.
    PortRules,
    /// Landlock's scope for signals.
    SignalScope,
    /// Landlock's scope for abstract sockets.
    SocketScope,
    /// Landlock's refusal to trace, read or inspect across domains.
    DomainBorder,
    /// A rule of the seccomp filter for this call.
    CallRules,
    /// The filter's list of sockets.
    SocketList,
    /// The filter's look at the architecture.
    Architecture,
    /// `no_new_privs`.
    NoNewPrivileges,
    /// A resource limit.
    Limit,
    /// The spawner's clean start: no descriptor, no directory, no variable is inherited.
    CleanStart,
    /// The namespaces of tier `namespace`; tier `domain` does not stop it.
    Namespace,
    /// The kernel itself, whoever asks without a privilege. Tried all the same; never counted as ours.
    Kernel,
    /// Nothing, and nobody claims so.
    Nothing,
}

/// What a tier promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Refused, with one of these answers: errno names, or a signal's.
    Refused(&'static [&'static str]),
    /// It works, and the tier says so.
    Leaks,
    /// It works, and does no harm: what is reached is the session's own in this tier.
    Own,
}

/// One attack.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    /// Stable, kebab-case.
    pub id: &'static str,
    /// At what.
    pub target: Target,
    /// What it does, in one sentence.
    pub does: &'static str,
    /// A manual page or a public report that describes it.
    pub source: &'static str,
    /// Each of these alone stops it in tier `domain`; the namespaces where that tier does not.
    pub defences: &'static [Defence],
    /// What tier `domain` promises.
    pub domain: Expected,
    /// What tier `namespace` promises.
    pub namespace: Expected,
    pub(crate) run: Run,
}

/// Carries it out; `Ok` where the kernel let it happen. A child process of its own runs it.
pub(crate) type Run = fn(&Shot<'_>) -> io::Result<()>;

// === impl Target ===

impl Target {
    /// As it is written in a matrix.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Git => "git",
            Self::House => "house",
            Self::Processes => "processes",
            Self::Supervisor => "supervisor",
            Self::Network => "network",
            Self::Ipc => "ipc",
            Self::Kernel => "kernel",
            Self::Machine => "machine",
        }
    }
}

// === impl Attack ===

impl Attack {
    pub(super) const fn new(
        target: Target,
        id: &'static str,
        does: &'static str,
        source: &'static str,
        run: Run,
    ) -> Self {
        let namespace = Expected::Refused(&["EPERM"]);
        Self {
            id,
            target,
            does,
            source,
            defences: &[Defence::CallRules],
            domain: namespace,
            namespace,
            run,
        }
    }

    pub(super) const fn by(mut self, defences: &'static [Defence]) -> Self {
        self.defences = defences;
        self
    }

    /// Refused with one of these in both tiers.
    pub(super) const fn refused(self, answers: &'static [&'static str]) -> Self {
        self.domain(answers).namespace(answers)
    }

    pub(super) const fn domain(mut self, answers: &'static [&'static str]) -> Self {
        self.domain = Expected::Refused(answers);
        self
    }

    pub(super) const fn namespace(mut self, answers: &'static [&'static str]) -> Self {
        self.namespace = Expected::Refused(answers);
        self
    }

    /// Tier `domain` does not stop it.
    pub(super) const fn leaks(mut self) -> Self {
        self.domain = Expected::Leaks;
        self.defences = &[Defence::Namespace];
        self
    }

    /// No tier stops it.
    pub(super) const fn leaks_always(mut self) -> Self {
        (self.domain, self.namespace) = (Expected::Leaks, Expected::Leaks);
        self.defences = &[Defence::Nothing];
        self
    }

    /// In tier `namespace` what is reached is the session's own.
    pub(super) const fn own(mut self) -> Self {
        self.namespace = Expected::Own;
        self
    }

    /// The kernel refuses it to whoever has no privilege, wall or not.
    pub(super) const fn kernel(mut self, answers: &'static [&'static str]) -> Self {
        self.defences = &[Defence::Kernel];
        self.refused(answers)
    }

    /// What this tier promises.
    #[must_use]
    pub fn promised(&self, namespace: bool) -> Expected {
        if namespace { self.namespace } else { self.domain }
    }

    /// Whether it reaches what is another session's where tier `domain` stands between them: its listeners, and the numbers and
    /// keyrings of the user whom both are. No policy of one session is to open it.
    #[must_use]
    pub fn reaches_another(&self) -> bool {
        const OTHERS: [&str; 6] =
            ["tcp-connect", "tcp-fast-open", "mptcp-", "unix-", "abstract-", "shm-attach"];
        OTHERS.iter().any(|prefix| self.id.starts_with(prefix)) || self.id == "key-link"
    }

    /// Whether a tier of ours stops what would work without.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        !self.defences.iter().any(|one| matches!(one, Defence::Kernel | Defence::Nothing))
    }
}
