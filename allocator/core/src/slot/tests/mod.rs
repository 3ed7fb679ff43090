//! Every state that small worlds can reach, breadth first.

mod canon;
mod examples;
mod explore;
mod server;
mod steps;
