//! What an allocator issues: a certificate for one start of one slot's worker, by an authority that is made for it and forgotten.
//!
//! So there is no key of an authority to be kept, and nothing that was issued for one start is good for another: the key lives in the
//! worker's memory and goes with it, the authority's certificate in the record of that worker.

use casemate_protocol::tls::{Certificate, Pin};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

/// A clock that is behind this far is no reason to refuse.
const BEFORE: Duration = Duration::days(1);
/// Longer than any worker lives: a certificate ends with its worker, not by its date.
const LIFE: Duration = Duration::days(10 * 365);

/// A certificate could not be made.
#[derive(Debug, thiserror::Error)]
#[error("no certificate for {name}")]
pub struct NotIssued {
    name: String,
    #[source]
    source: rcgen::Error,
}

/// A certificate for the worker of the slot `name`, and what its clients are to believe. Not to be stored but with the worker.
///
/// # Errors
/// [`NotIssued`]: the name is none of DNS.
pub fn issue(name: &str) -> Result<(Certificate, Pin), NotIssued> {
    let now = OffsetDateTime::now_utc();
    issue_for(name, now - BEFORE, now + LIFE)
}

/// As [`issue`], valid from then till then; for tests of what is not.
///
/// # Errors
/// [`NotIssued`].
pub fn issue_for(
    name: &str,
    from: OffsetDateTime,
    till: OffsetDateTime,
) -> Result<(Certificate, Pin), NotIssued> {
    let made = || {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // Its own name: two authorities of one name are told apart by their signatures alone.
        authority
            .distinguished_name
            .push(DnType::CommonName, format!("casemate {name} {}", random()));
        (authority.not_before, authority.not_after) =
            (from.min(OffsetDateTime::now_utc()), till.max(OffsetDateTime::now_utc() + LIFE));
        let authority_key = KeyPair::generate()?;
        let ca = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let mut worker = CertificateParams::new(vec![name.to_owned()])?;
        worker.distinguished_name.push(DnType::CommonName, name);
        worker.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        worker.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        (worker.not_before, worker.not_after) = (from, till);
        let key = KeyPair::generate()?;
        let chain = worker.signed_by(&key, &issuer)?.pem();
        let pin = Pin { ca, name: name.to_owned() };
        Ok((Certificate { chain, key: key.serialize_pem() }, pin))
    };
    made().map_err(|source| NotIssued { name: name.to_owned(), source })
}

fn random() -> String {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes).expect("the kernel's random source answers once booted");
    u64::from_be_bytes(bytes).to_string()
}
