//! Discovery of targets in AWS: EC2 and Lightsail instances, ECS tasks, ElastiCache caches, MSK
//! brokers and RDS database instances.
//!
//! ```text
//! credentials -> signed request -> response -> next page token -> signed request ..
//! ```
//!
//! The behaviour follows upstream's `discovery/aws`, the documentation of the AWS APIs, and the
//! credential provider order of the AWS SDK.

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
mod services;
mod session;
mod settings;
mod sign;
mod signer;
#[cfg(test)]
mod tests;
mod texts;

pub(super) use credentials::AwsCredentials;
pub(super) use request::sign_post;
pub(super) use services::{BY_ROLE, EC2, ECS, ELASTICACHE, LIGHTSAIL, MSK, RDS};
pub use settings::AwsSettings;
pub(super) use sign::SigV4Scope;
pub use signer::{SigV4Settings, read_sigv4};
