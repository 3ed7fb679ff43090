//! Both ends against each other in memory: every reachable state of a small world, every cut of a long conversation,
//! random ones.

mod cuts;
mod exhaustive;
mod model;
mod rules;
mod world;
