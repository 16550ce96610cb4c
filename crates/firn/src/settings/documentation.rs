//! Pages of the documentation that are made from the code: `docs/settings.md` from the tables of
//! flags and keys, by `firn serve --write-documentation`, and `docs/api.md` from the table of
//! routes, by `--write-documentation=api`.

use super::flags::Page;
use super::{config, flags};

/// The whole page.
pub fn page(page: Page) -> String {
    match page {
        Page::Settings => settings(),
        Page::Api => firn_server::documentation(),
    }
}

fn settings() -> String {
    format!(
        "# Settings\n\
         \n\
         Made by `firn serve --write-documentation`; a test holds it to the code.\n\
         \n\
         ## Flags of `firn serve`\n\
         \n\
         Names and defaults are Prometheus's, but for the address, which is the loopback, and for \
         CORS, which is off. Switches have a negative form: `--no-web.enable-lifecycle`. Unknown \
         flags are errors.\n\
         \n\
         {}\n\
         ## Keys under `firn` in the config\n\
         \n\
         The config is a `prometheus.yml`. Everything of Firn's own sits under the one key `firn`; \
         without it the file is Prometheus's again. Unknown keys are errors; keys of \
         Prometheus that have no effect are named in a warning. Those that have one keep \
         Prometheus's default, but for `storage.tsdb.out_of_order_time_window`, how far behind the \
         newest sample late ones are taken: `30m`. It takes effect with a reload.\n\
         \n\
         {}",
        flags::documentation(),
        config::documentation(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_page_in_docs_equals_the_tables() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            stored == settings(),
            "docs/settings.md is old: firn serve --write-documentation > docs/settings.md"
        );
    }
}
