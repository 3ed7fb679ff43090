//! Tickets: what reconnects to an attachment, without the allocator and after the token's expiry.
//!
//! A ticket is `EPOCH.MAC`: the attachment's number in decimal and HMAC-SHA-256 (RFC 2104) of it in base64url without
//! padding, under a key that one worker process makes for itself and never tells. So a restarted worker refuses every
//! ticket of the one before, and a worker knows a superseded ticket without having kept it. For a client it is opaque
//! and a secret.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The key of one worker process.
#[derive(Clone)]
pub struct TicketKey(Hmac<Sha256>);

/// Why a ticket does not reconnect; the words of [`super::REFUSAL_HEADER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Not of this worker process: another generation, another boot, or no ticket at all.
    Unknown,
    /// A newer attachment took over.
    Superseded,
    /// The attachment is over: it was left, or cut for too long.
    Over,
}

// === impl TicketKey ===

impl TicketKey {
    /// A new one.
    ///
    /// # Panics
    /// Where the kernel has no randomness yet, which is over before any user process runs.
    #[must_use]
    pub fn generate() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the kernel's random source answers once booted");
        Self(Hmac::new_from_slice(&key).expect("HMAC takes keys of any length"))
    }

    /// The ticket of an attachment.
    #[must_use]
    pub fn ticket(&self, epoch: u64) -> String {
        let mac = self.mac(epoch).finalize().into_bytes();
        format!("{epoch}.{}", URL_SAFE_NO_PAD.encode(mac))
    }

    /// The epoch of a ticket that this key made. Takes the same time wherever it differs.
    #[must_use]
    pub fn epoch(&self, ticket: &str) -> Option<u64> {
        let (epoch, mac) = ticket.split_once('.')?;
        let epoch = epoch.parse().ok()?;
        let mac = URL_SAFE_NO_PAD.decode(mac).ok()?;
        self.mac(epoch).verify_slice(&mac).ok().map(|()| epoch)
    }

    fn mac(&self, epoch: u64) -> Hmac<Sha256> {
        self.0.clone().chain_update(b"casemate relay 1\0").chain_update(epoch.to_be_bytes())
    }
}

impl std::fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKey(..)")
    }
}

// === impl Refused ===

impl Refused {
    const ALL: [Self; 3] = [Self::Unknown, Self::Superseded, Self::Over];

    /// As the header has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Superseded => "superseded",
            Self::Over => "over",
        }
    }

    /// Reads the header.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|refused| refused.as_str() == word)
    }

    /// The HTTP status that goes with it.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Unknown => 401,
            Self::Superseded => 409,
            Self::Over => 410,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_names_its_epoch_to_its_own_worker_alone() {
        let (key, other) = (TicketKey::generate(), TicketKey::generate());
        let ticket = key.ticket(7);
        assert_eq!(key.epoch(&ticket), Some(7));
        assert_eq!(other.epoch(&ticket), None);
        let another = ticket.replacen('7', "8", 1);
        let short = &ticket[..ticket.len() - 2];
        for forged in [another.as_str(), short, "7", "7.", "", "x.y"] {
            assert_eq!(key.epoch(forged), None, "{forged}");
        }
        assert!(!format!("{key:?}").contains(&ticket));
    }

    #[test]
    fn refusals_are_read_back() {
        for refused in Refused::ALL {
            assert_eq!(Refused::parse(refused.as_str()), Some(refused));
        }
        assert_eq!(Refused::parse("other"), None);
    }
}
