//! The main loop of a server: periodic work, signals, and changes of the configuration.

use super::error::ServeError;
use super::opened_data::OpenedData;
use super::signals::SignalEvent;
use super::store_settings::{late_window_ms, limits_by_tenant, retention_of, series_limits};
use super::subscribers::ConfigSubscribers;
use super::{StartingServer, metadata, scraping};
use firn_config::config::Config;
use firn_model::tenant::TenantId;
use firn_storage::store::RetentionLimits;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

/// Interval at which the store may start background work that is due.
const TICK: Duration = Duration::from_secs(1);

impl StartingServer {
    /// Runs periodic work until a signal or a request ends the process.
    pub(super) async fn serve(
        &mut self,
        mut configs: watch::Receiver<Arc<Config>>,
        following: &ConfigSubscribers<'_>,
    ) -> Result<(), ServeError> {
        let ConfigSubscribers { data, pipeline, .. } = *following;
        let mut retention = self.retention_limits();
        let mut tick = tokio::time::interval(TICK);
        let mut looking = tokio::time::interval(self.reload_every.unwrap_or(TICK).max(TICK));
        let mut held = self.memory.create_reservation();
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    if let Some(fault) = data.fault() {
                        return Err(ServeError::LostPartition(fault));
                    }
                    data.tick();
                    pipeline.log_due_rejections();
                    following.rules.tick();
                    let pressure = self.pressure.clone();
                    // A check that returns much memory to the system takes tenths of a second.
                    let aggregating = Arc::clone(following.aggregating);
                    let of_metadata = pipeline.clone();
                    spawn_blocking(move || {
                        pressure.update_decay_time();
                        aggregating.apply();
                        metadata::store_if_due(&of_metadata, false);
                    });
                    let state = pipeline.aggregation_bytes() + pipeline.deltas_bytes();
                    let state = state + pipeline.replicas_bytes();
                    held.set(self.own_bytes + data.memory_bytes() + state);
                }
                _ = looking.tick(), if self.reload_every.is_some() => self.look_for_changes(),
                Some(()) = self.quitting.recv() => return Ok(()),
                Ok(()) = configs.changed() => {
                    let config = configs.borrow_and_update().clone();
                    self.keep_by_config(&mut retention, data);
                    self.apply_config(&config, following);
                }
                wish = self.signals.next() => match wish {
                    SignalEvent::Stop => return Ok(()),
                    SignalEvent::Reload => {
                        let running = self.running.clone();
                        // `reload` logs its own errors.
                        let _ = spawn_blocking(move || running.reload()).await?;
                    }
                }
            }
        }
    }

    /// Applies a new configuration to all parts that follow it.
    pub(super) fn apply_config(&self, config: &Arc<Config>, following: &ConfigSubscribers<'_>) {
        let OpenedData { store, tenants, .. } = following.data;
        if self.keeps_exemplars {
            store.set_exemplars_max(config.exemplars_max);
        }
        let own = TenantId::anonymous();
        store.set_late_window_ms(late_window_ms(config, &own));
        store.set_series_limits(series_limits(config, &own));
        if let Some(tenants) = tenants {
            if self.keeps_exemplars {
                tenants.set_exemplars_max(config.exemplars_max);
            }
            tenants.set_limits(limits_by_tenant(config, self.common_retention()));
        }
        following.pipeline.set_overrides(config.overrides.clone());
        following.pipeline.set_translation(config.otlp.clone());
        if !self.scrapes_itself() {
            scraping::apply(following.scraping, config);
        }
        let notifier = following.notifier;
        notifier.apply(&config.alerting, &config.external_labels);
        following.reading.apply_config(config);
        self.spans.apply_config(config);
    }

    /// Reloads the configuration if it changed, on a thread for blocking work.
    fn look_for_changes(&self) {
        let running = self.running.clone();
        spawn_blocking(move || running.reload_if_changed());
    }

    /// Returns the retention limits of tenants without a retention time of their own.
    pub(super) fn common_retention(&self) -> RetentionLimits {
        let rules = self.running.config().retention_rules.clone();
        (self.retention)().limits(rules)
    }

    /// Returns the retention limits of the tenant `anonymous`.
    fn retention_limits(&self) -> RetentionLimits {
        let config = self.running.config();
        retention_of(&config, self.common_retention(), &TenantId::anonymous())
    }

    /// Applies the retention of a new configuration to the store, if it differs from the `known`
    /// one.
    fn keep_by_config(&self, known: &mut RetentionLimits, data: &OpenedData) {
        let (retention, limits) = ((self.retention)(), self.retention_limits());
        if *known == limits {
            return;
        }
        info!(%retention, rules = limits.rules.as_slice().len(), "retention changed");
        retention.warn();
        if let Err(e) = retention.check_disk(&*self.env.disk, &self.options.dir) {
            warn!(
                error = %e,
                "cannot apply the retention percentage: using the retention size only"
            );
        }
        known.clone_from(&limits);
        data.store.set_retention(limits);
    }
}
