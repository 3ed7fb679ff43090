//! The few algorithms that both ends have, out of ring: what is not named here is not linked.

use std::sync::Arc;

use rustls::Error;
use rustls::crypto::ring::{cipher_suite, kx_group, sign};
use rustls::crypto::{
    CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;

/// Both ends', which differ in whose signatures they can look at.
pub(crate) fn provider(signatures: WebPkiSupportedAlgorithms) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![kx_group::X25519, kx_group::SECP256R1],
        signature_verification_algorithms: signatures,
        secure_random: &Kernel,
        key_provider: &Ecdsa,
    })
}

/// getrandom(2).
#[derive(Debug)]
struct Kernel;

impl SecureRandom for Kernel {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        getrandom::fill(bytes).map_err(|_| GetRandomFailed)
    }
}

/// Keys of one kind.
#[derive(Debug)]
struct Ecdsa;

impl KeyProvider for Ecdsa {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        sign::any_ecdsa_type(&key)
    }
}
