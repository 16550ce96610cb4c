//! Targets from Amazon's clouds: instances of EC2 and of Lightsail, tasks of ECS, caches of
//! ElastiCache, nodes of MSK and databases of RDS.
//!
//! ```text
//! credentials -> request, signed -> answer -> next token -> request ..
//! ```
//!
//! Facts are from upstream's `discovery/aws`, from Amazon's APIs, and from the order in which its
//! SDK looks for credentials.

mod credentials;
mod ec2;
mod ecs;
mod elasticache;
#[cfg(test)]
mod family_tests;
mod lightsail;
mod msk;
mod rds;
mod request;
mod service;
mod session;
mod settings;
mod sign;
mod signer;
#[cfg(test)]
mod tests;
mod texts;

pub(super) use credentials::Credentials;
pub(super) use ec2::Ec2;
pub(super) use ecs::Ecs;
pub(super) use elasticache::ElastiCache;
pub(super) use lightsail::Lightsail;
pub(super) use msk::Msk;
pub(super) use rds::Rds;
pub(super) use request::add_signature;
pub use settings::AwsSettings;
pub(super) use sign::Scope;
pub use signer::SigV4Settings;
