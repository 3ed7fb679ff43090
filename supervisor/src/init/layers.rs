//! Which layers stand. Pure.
//!
//! `no_new_privs`, no capabilities and a process that cannot be looked into are no layers: Landlock and seccomp need the
//! first, and the shield of this process is not for sale.

use casemate_sandbox::Layers;

/// A layer by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Layer {
    /// Paths and ports.
    Landlock,
    /// Signals and abstract sockets; also how everything that was started is ended at once.
    Scope,
    /// System calls and kinds of sockets.
    Seccomp,
    /// Only the policy's variables.
    Environment,
    /// Resource limits.
    Rlimits,
    /// Processes, disk and files of all that was started; needs `scope`.
    Bounds,
}

/// The layers that stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// Those of the wall.
    pub walls: Layers,
    /// Only the policy's variables.
    pub environment: bool,
    /// What the session may take, counted within its scope.
    pub bounds: bool,
}

impl Layer {
    const ALL: [Self; 6] = [
        Self::Landlock,
        Self::Scope,
        Self::Seccomp,
        Self::Environment,
        Self::Rlimits,
        Self::Bounds,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Scope => "scope",
            Self::Seccomp => "seccomp",
            Self::Environment => "environment",
            Self::Rlimits => "rlimits",
            Self::Bounds => "bounds",
        }
    }
}

// === impl Chosen ===

impl Chosen {
    /// What stands while the walls are open to learn.
    pub const LEARNING: Self = Self {
        walls: Layers { landlock: false, scope: true, seccomp: false, rlimits: true },
        environment: true,
        bounds: false,
    };

    /// Of all, or of those in `only`, the ones that are not in `without`. Bounds go with the scope that they are counted in.
    #[must_use]
    pub fn of(only: &[Layer], without: &[Layer]) -> Self {
        let on = |layer| (only.is_empty() || only.contains(&layer)) && !without.contains(&layer);
        Self {
            walls: Layers {
                landlock: on(Layer::Landlock),
                scope: on(Layer::Scope),
                seccomp: on(Layer::Seccomp),
                rlimits: on(Layer::Rlimits),
            },
            environment: on(Layer::Environment),
            bounds: on(Layer::Bounds) && on(Layer::Scope),
        }
    }

    fn has(self, layer: Layer) -> bool {
        match layer {
            Layer::Landlock => self.walls.landlock,
            Layer::Scope => self.walls.scope,
            Layer::Seccomp => self.walls.seccomp,
            Layer::Environment => self.environment,
            Layer::Rlimits => self.walls.rlimits,
            Layer::Bounds => self.bounds,
        }
    }

    /// Names of those that stand; `none` where there is none.
    #[must_use]
    pub fn on(self) -> Vec<&'static str> {
        Layer::ALL.into_iter().filter(|layer| self.has(*layer)).map(Layer::name).collect()
    }

    /// Names of those that do not.
    #[must_use]
    pub fn off(self) -> Vec<&'static str> {
        Layer::ALL.into_iter().filter(|layer| !self.has(*layer)).map(Layer::name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_stands_unless_it_is_left_out_and_what_is_left_out_is_named() {
        let all = Chosen::of(&[], &[]);
        assert!(all.walls == Layers::ALL && all.environment && all.bounds && all.off().is_empty());
        for layer in Layer::ALL {
            let (off, on) = match layer {
                Layer::Scope => (vec!["scope", "bounds"], vec!["scope"]),
                Layer::Bounds => (vec!["bounds"], vec![]),
                _ => (vec![layer.name()], vec![layer.name()]),
            };
            assert_eq!(Chosen::of(&[], &[layer]).off(), off);
            assert_eq!(Chosen::of(&[layer], &[]).on(), on);
        }
        assert_eq!(Chosen::of(&[Layer::Bounds, Layer::Scope], &[]).on(), ["scope", "bounds"]);
    }
}
