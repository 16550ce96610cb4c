//! Version of this program and details of its build.
//!
//! Packagers set the variables `FIRN_REVISION`, `FIRN_BRANCH`, `FIRN_BUILD_USER` and
//! `FIRN_BUILD_DATE` during compilation. Without them a build does not depend on the state of the
//! repository, so that a new commit recompiles nothing by itself.

use firn_server::parts::BuildInfo;

/// Version of Prometheus whose behaviour this version of Firn follows.
pub const PROMETHEUS_VERSION: &str = "3.14.0";

/// Value of each build variable that the packager did not set.
const UNKNOWN: &str = "unknown";

/// Returns the build information that the API reports at `/api/v1/status/buildinfo`.
pub fn build() -> BuildInfo {
    let known = |value: Option<&str>| {
        let value = value.filter(|value| !value.is_empty());
        value.unwrap_or(UNKNOWN).to_owned()
    };
    BuildInfo {
        version: PROMETHEUS_VERSION.into(),
        revision: known(option_env!("FIRN_REVISION")),
        branch: known(option_env!("FIRN_BRANCH")),
        build_user: known(option_env!("FIRN_BUILD_USER")),
        build_date: known(option_env!("FIRN_BUILD_DATE")),
        go_version: format!("rustc {}", env!("CARGO_PKG_RUST_VERSION")),
        firn_version: env!("CARGO_PKG_VERSION").into(),
    }
}

/// Returns the build information as printed by `--version`, in the format of `prometheus
/// --version`.
pub fn text() -> String {
    let build = build();
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let mut out = format!(
        "firn, version {} (branch: {}, revision: {})\n",
        build.firn_version, build.branch, build.revision
    );
    for (what, value) in [
        ("build user:", build.build_user),
        ("build date:", build.build_date),
        ("compatible with:", format!("Prometheus {}", build.version)),
        ("platform:", platform),
    ] {
        if value != UNKNOWN {
            out += &format!("  {what:<18}{value}\n");
        }
    }
    out
}
