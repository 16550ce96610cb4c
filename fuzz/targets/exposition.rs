//! Fuzzes scraped pages in each format and with each option: nothing panics, parsing terminates,
//! and the labels of each sample can be read.

#![cfg_attr(fuzzing, no_main)]

use firn_model::exemplar::SampleExemplars;
use firn_wire::exposition::{
    ExpositionEvent, ExpositionFormat, ExpositionParser, LabelPairs, ParserSwitches,
};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some(([form, switches], body)) = input.split_first_chunk() else {
        return;
    };
    let format = match form % 3 {
        0 => ExpositionFormat::Text,
        1 => ExpositionFormat::OpenMetrics,
        _ => ExpositionFormat::Protobuf,
    };
    let on = |bit: u8| switches >> bit & 1 == 1;
    let switches = ParserSwitches {
        type_and_unit_labels: on(0),
        start_times: on(1),
        native_histograms: on(2),
        convert_classic_histograms: on(3),
        always_classic_histograms: on(4),
    };
    let mut parser = ExpositionParser::new(format, body, switches);
    let (mut pairs, mut exemplars) = (LabelPairs::default(), SampleExemplars::default());
    let mut events = 0;
    while let Ok(true) = parser.advance() {
        events += 1;
        assert!(events <= 16 * (body.len() + 16), "reading does not end");
        if let ExpositionEvent::Sample(_) = parser.event()
            && parser.labels(&mut pairs).is_ok()
        {
            parser.exemplars(&mut exemplars);
        }
    }
});
