//! `casemate-supervisor check`: what this machine's kernel offers, as JSON.
