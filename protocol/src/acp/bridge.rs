//! The role of `casemate acp`.
