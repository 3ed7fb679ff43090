//! Helm and the chart.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::cluster::said;
use crate::{Cluster, Said};

/// Helm in a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Helm<'a> {
    cluster: &'a Cluster,
    program: &'a OsStr,
}

impl<'a> Helm<'a> {
    pub(crate) fn new(cluster: &'a Cluster, program: &'a OsStr) -> Self {
        Self { cluster, program }
    }

    /// The chart of this checkout.
    #[must_use]
    pub fn chart() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/casemate")
    }

    /// Runs Helm to its end.
    ///
    /// # Panics
    /// Where it does not start, and where it has not ended after three minutes.
    #[must_use]
    pub fn run(&self, arguments: &[&str], stdin: &str) -> Said {
        let mut command = self.cluster.within(self.program);
        if let Some(kubeconfig) = self.cluster.kubeconfig() {
            command.env("KUBECONFIG", kubeconfig);
        }
        command.args(arguments);
        said(command, stdin).unwrap_or_else(|| panic!("helm {arguments:?} has not ended"))
    }

    /// The same where anything but success is a failed test.
    ///
    /// # Panics
    /// Where Helm fails.
    #[must_use]
    pub fn must(&self, arguments: &[&str], stdin: &str) -> String {
        let said = self.run(arguments, stdin);
        assert!(said.success, "helm {arguments:?}: {}{}", said.out, said.err);
        said.out
    }
}
