//! Writes the initial corpus of each fuzz target to a directory: `seeds DIR`.

#[path = "corpus.rs"]
mod corpus;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "corpus".into());
    for (target, inputs) in corpus::corpora() {
        let dir = Path::new(&dir).join(target);
        std::fs::create_dir_all(&dir)?;
        for (number, input) in inputs.into_iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{number}")), input)?;
        }
    }
    Ok(())
}
