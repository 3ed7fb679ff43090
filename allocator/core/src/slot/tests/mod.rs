//! Every state that small worlds can reach, breadth first.

mod canon;
mod examples;
mod explore;
mod pool;
mod server;
mod steps;
mod table;
