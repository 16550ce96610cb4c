//! Content types and `ConnectionSource` headers.

use super::*;

fn check(
    header: &str,
    fallback: Option<ScrapeProtocol>,
    wanted: Result<(ExpositionFormat, &str), &str>,
) {
    let found = ExpositionFormat::from_content_type(header, fallback);
    let found = found
        .map(|chosen| (chosen.format, chosen.complaint.unwrap_or_default()))
        .map_err(|e| e.to_string());
    let wanted = wanted
        .map(|(format, complaint)| (format, complaint.to_owned()))
        .map_err(str::to_owned);
    assert_eq!(found, wanted, "{header}");
}

#[test]
fn content_type_known_is_taken() {
    for header in [
        "text/plain",
        "text/plain; version=0.0.4; charset=utf-8; escaping=values",
        "Text/Plain;",
        "text/plain ; a=\"\\\"b\";a=\"\\\"b\"",
        "text/plain; x=y ; ",
    ] {
        check(header, None, Ok((ExpositionFormat::Text, "")));
    }
    let header = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    check(header, None, Ok((ExpositionFormat::OpenMetrics, "")));
    let header = "application/vnd.google.protobuf; encoding=delimited";
    check(header, None, Ok((ExpositionFormat::Protobuf, "")));
}

#[test]
fn content_type_unusable_fails_or_takes_the_fallback() {
    let text = Some(ScrapeProtocol::PrometheusText0_0_4);
    let used = "using fallback_scrape_protocol \"text/plain\"";
    let blank = "non-compliant scrape target sending blank Content-Type";
    check(
        "",
        text,
        Ok((ExpositionFormat::Text, &format!("{blank}, {used}"))),
    );
    let refused = format!("{blank} and no fallback_scrape_protocol specified for target");
    check("", None, Err(&refused));
    let html = "received unsupported Content-Type \"text/html; x=y\"";
    check(
        "text/html; x=y",
        text,
        Ok((ExpositionFormat::Text, &format!("{html}, {used}"))),
    );
    let refused = format!("{html} and no fallback_scrape_protocol specified for target");
    check("text/html; x=y", None, Err(&refused));
    for (header, why) in [
        (";", "mime: no media type"),
        ("text plain", "mime: expected slash after first token"),
        ("text/", "mime: expected token after slash"),
        (
            "text/plain,",
            "mime: unexpected content after media subtype",
        ),
        ("text/plain;a", "mime: invalid media parameter"),
        ("text/plain;a=", "mime: invalid media parameter"),
        ("text/plain;a=\"b", "mime: invalid media parameter"),
        ("text/plain;;", "mime: invalid media parameter"),
        ("text/plain;a=b;a=c", "mime: duplicate parameter name"),
    ] {
        let refused = format!(
            "cannot parse Content-Type {} and no fallback_scrape_protocol for target\n{why}",
            quote(header.as_bytes())
        );
        check(header, None, Err(&refused));
        let complaint = format!(
            "could not parse received Content-Type {}, {used}",
            quote(header.as_bytes())
        );
        check(header, text, Ok((ExpositionFormat::Text, &complaint)));
    }
}

#[test]
fn accept_header_asks_as_upstream() {
    let header = accept_header(&ScrapeProtocol::DEFAULT, ScrapeNameEscaping::AllowUtf8);
    let wanted = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
        application/openmetrics-text;version=0.0.1;q=0.5,\
        text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,\
        */*;q=0.2";
    assert_eq!(header, wanted);
    let header = accept_header(
        &ScrapeProtocol::DEFAULT_WITH_NATIVE_HISTOGRAMS[..2],
        ScrapeNameEscaping::Underscores,
    );
    let wanted = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
        encoding=delimited;q=0.6,\
        application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.5,*/*;q=0.4";
    assert_eq!(header, wanted);
}

#[test]
fn scrape_protocol_is_known_by_its_name() {
    for protocol in ScrapeProtocol::ALL {
        assert_eq!(ScrapeProtocol::from_name(protocol.name()), Some(protocol));
    }
    assert_eq!(ScrapeProtocol::from_name("prometheusproto"), None);
}
