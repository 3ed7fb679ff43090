//! What a worker serves TLS with, and whom a client of it believes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A certificate with its key, both in PEM (RFC 7468). What is printed of it is the certificate.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// The chain, the worker's own first; its SAN is the slot's name.
    pub chain: String,
    /// The key: ECDSA on P-256, as PKCS#8 or SEC 1.
    pub key: String,
}

/// The one authority and the one name that a client of a worker believes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The authority's certificate, in PEM.
    pub ca: String,
    /// The name that the worker's certificate has to have: its slot's.
    pub name: String,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("chain", &self.chain).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_printed() {
        let certificate = Certificate { chain: "chain".into(), key: "secret".into() };
        let printed = format!("{certificate:?}");
        assert!(printed.contains("chain") && !printed.contains("secret"), "{printed}");
    }
}
