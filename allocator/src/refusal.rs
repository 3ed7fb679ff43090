//! Every inner error as the API's own: which kind, which words.

use casemate_allocator_core::allocate::Refusal;
use casemate_allocator_core::record::WrongPhase;
use casemate_protocol::api::{ApiError, ErrorKind};
use casemate_protocol::words::chain;
use casemate_protocol::worker::StartError;

use crate::home::HomeError;
use crate::profile::ProfileError;
use crate::programs::ProgramError;
use crate::repository::RepositoryError;
use crate::store::StoreError;
use crate::worker::client::CallError;
use crate::worker::fence::StillAlive;
use crate::worker::launch::LaunchError;

/// An API error of `kind`.
pub(crate) fn refuse(kind: ErrorKind, message: impl std::fmt::Display) -> ApiError {
    ApiError { kind, message: message.to_string(), start: None }
}

/// Local `From` would be an orphan impl: both types are foreign here, so the conversion is a trait of ours.
pub(crate) trait IntoApi {
    /// The error as callers see it.
    fn into_api(self) -> ApiError;
}

impl IntoApi for StoreError {
    fn into_api(self) -> ApiError {
        let kind = match self {
            Self::Full | Self::InUse(_) | Self::Values(_) => ErrorKind::Unavailable,
            Self::Database(_) | Self::Row(_) => ErrorKind::Internal,
        };
        refuse(kind, chain(&self))
    }
}

impl IntoApi for HomeError {
    fn into_api(self) -> ApiError {
        refuse(ErrorKind::Unavailable, chain(&self))
    }
}

impl IntoApi for CallError {
    fn into_api(self) -> ApiError {
        refuse(ErrorKind::WorkerFailed, self)
    }
}

impl IntoApi for ProfileError {
    fn into_api(self) -> ApiError {
        let kind = match self {
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Name(_) | Self::Parse { .. } => ErrorKind::Invalid,
            Self::Io { .. } => ErrorKind::Unavailable,
        };
        // A wrong file is no wrong call, and has an exit code of its own.
        let wrong = matches!(self, Self::Parse { .. });
        let start = wrong.then(|| StartError::Profile { message: self.to_string() });
        ApiError { start, ..refuse(kind, self) }
    }
}

impl IntoApi for RepositoryError {
    fn into_api(self) -> ApiError {
        let kind = match self {
            Self::Missing(_) | Self::Unreadable(_) | Self::NotGit(_) => ErrorKind::NotFound,
            Self::Userinfo | Self::Unsupported(_) | Self::Inside(_) => ErrorKind::Invalid,
        };
        refuse(kind, self)
    }
}

impl IntoApi for ProgramError {
    fn into_api(self) -> ApiError {
        match self {
            Self::NotFound { .. } => ApiError {
                kind: ErrorKind::NotFound,
                message: self.to_string(),
                start: Some(StartError::AgentNotFound { message: self.to_string() }),
            },
            Self::NotExecutable(_) => ApiError {
                kind: ErrorKind::Invalid,
                message: self.to_string(),
                start: Some(StartError::AgentNotRunnable { message: self.to_string() }),
            },
            _ => refuse(ErrorKind::Invalid, self),
        }
    }
}

impl IntoApi for LaunchError {
    fn into_api(self) -> ApiError {
        match self {
            Self::Start(start) => ApiError {
                kind: ErrorKind::WorkerFailed,
                message: start.to_string(),
                start: Some(start),
            },
            Self::Log { .. } => refuse(ErrorKind::Unavailable, self),
            _ => refuse(ErrorKind::WorkerFailed, self),
        }
    }
}

impl IntoApi for Refusal {
    fn into_api(self) -> ApiError {
        let kind = match self {
            Self::RequestReused | Self::Ended(_) => ErrorKind::Conflict,
            Self::Unknown => ErrorKind::NotFound,
        };
        refuse(kind, self)
    }
}

impl IntoApi for StillAlive {
    fn into_api(self) -> ApiError {
        refuse(ErrorKind::Internal, self)
    }
}

impl IntoApi for WrongPhase {
    fn into_api(self) -> ApiError {
        refuse(ErrorKind::Conflict, self)
    }
}
