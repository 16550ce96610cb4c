//! Oracle's regions: their short names, and the domains of regions outside of the commercial realm.
//! The tables are from Oracle's list of regions; regions that are not listed belong to the
//! commercial realm.

/// Domain of the commercial realm.
const COMMERCIAL: &str = "oraclecloud.com";

/// Short names of regions with their full names.
const SHORT: &[(&str, &str)] = &[
    ("aga", "us-saltlake-2"),
    ("ahu", "me-abudhabi-3"),
    ("ams", "eu-amsterdam-1"),
    ("arn", "eu-stockholm-1"),
    ("auh", "me-abudhabi-1"),
    ("avf", "eu-crissier-1"),
    ("avz", "eu-dcc-zurich-1"),
    ("beg", "eu-jovanovac-1"),
    ("bgy", "eu-dcc-milan-1"),
    ("bno", "ap-chuncheon-2"),
    ("bog", "sa-bogota-1"),
    ("bom", "ap-mumbai-1"),
    ("brs", "uk-gov-cardiff-1"),
    ("cdg", "eu-paris-1"),
    ("cwl", "uk-cardiff-1"),
    ("dac", "ap-dcc-gazipur-1"),
    ("dln", "ap-suwon-1"),
    ("doh", "me-dcc-doha-1"),
    ("dtm", "eu-dcc-rating-2"),
    ("dtz", "ap-seoul-2"),
    ("dus", "eu-dcc-rating-1"),
    ("dxb", "me-dubai-1"),
    ("ebb", "us-somerset-1"),
    ("ebl", "us-thames-1"),
    ("fra", "eu-frankfurt-1"),
    ("gru", "sa-saopaulo-1"),
    ("hnw", "sa-riodejaneiro-1"),
    ("hsg", "ap-batam-1"),
    ("hyd", "ap-hyderabad-1"),
    ("iad", "us-ashburn-1"),
    ("ibr", "me-ibri-1"),
    ("icn", "ap-seoul-1"),
    ("jbp", "ap-kulai-2"),
    ("jed", "me-jeddah-1"),
    ("jnb", "af-johannesburg-1"),
    ("jsk", "eu-budapest-1"),
    ("kix", "ap-osaka-1"),
    ("lej", "af-casablanca-1"),
    ("lfi", "us-langley-1"),
    ("lhr", "uk-london-1"),
    ("lin", "eu-milan-1"),
    ("ltn", "uk-gov-london-1"),
    ("luf", "us-luke-1"),
    ("mad", "eu-madrid-1"),
    ("mct", "me-dcc-muscat-1"),
    ("mel", "ap-melbourne-1"),
    ("mrs", "eu-marseille-1"),
    ("mty", "mx-monterrey-1"),
    ("mtz", "il-jerusalem-1"),
    ("mxp", "eu-dcc-milan-2"),
    ("nja", "ap-chiyoda-1"),
    ("nrq", "eu-turin-1"),
    ("nrt", "ap-tokyo-1"),
    ("onm", "ap-delhi-1"),
    ("ord", "us-chicago-1"),
    ("orf", "eu-madrid-3"),
    ("ork", "eu-dcc-dublin-1"),
    ("pgc", "us-newark-1"),
    ("phx", "us-phoenix-1"),
    ("pia", "us-gov-chicago-1"),
    ("qro", "mx-queretaro-1"),
    ("rba", "me-alain-1"),
    ("ric", "us-gov-ashburn-1"),
    ("rkt", "me-abudhabi-2"),
    ("ruh", "me-riyadh-1"),
    ("scl", "sa-santiago-1"),
    ("shj", "me-abudhabi-4"),
    ("sin", "ap-singapore-1"),
    ("sjc", "us-sanjose-1"),
    ("snn", "eu-dcc-dublin-2"),
    ("str", "eu-frankfurt-2"),
    ("syd", "ap-sydney-1"),
    ("tus", "us-gov-phoenix-1"),
    ("ukb", "ap-ibaraki-1"),
    ("vap", "sa-valparaiso-1"),
    ("vcp", "sa-vinhedo-1"),
    ("vll", "eu-madrid-2"),
    ("vve", "me-alrayyan-1"),
    ("wga", "ap-dcc-canberra-1"),
    ("xsp", "ap-singapore-2"),
    ("yny", "ap-chuncheon-1"),
    ("yul", "ca-montreal-1"),
    ("yxj", "us-ashburn-2"),
    ("yyz", "ca-toronto-1"),
    ("zrh", "eu-zurich-1"),
];

/// Domains of the other realms with their regions.
const REALMS: &[(&str, &[&str])] = &[
    ("oraclegovcloud.com", &["us-langley-1", "us-luke-1"]),
    (
        "oraclegovcloud.com",
        &["us-gov-ashburn-1", "us-gov-chicago-1", "us-gov-phoenix-1"],
    ),
    (
        "oraclegovcloud.uk",
        &["uk-gov-cardiff-1", "uk-gov-london-1"],
    ),
    ("oraclecloud8.com", &["ap-chiyoda-1", "ap-ibaraki-1"]),
    ("oraclecloud9.com", &["me-dcc-muscat-1", "me-ibri-1"]),
    ("oraclecloud10.com", &["ap-dcc-canberra-1"]),
    (
        "oraclecloud14.com",
        &[
            "eu-dcc-dublin-1",
            "eu-dcc-dublin-2",
            "eu-dcc-milan-1",
            "eu-dcc-milan-2",
            "eu-dcc-rating-1",
            "eu-dcc-rating-2",
        ],
    ),
    ("oraclecloud15.com", &["ap-dcc-gazipur-1"]),
    ("oraclecloud.eu", &["eu-frankfurt-2", "eu-madrid-2"]),
    ("oraclecloud20.com", &["eu-jovanovac-1"]),
    ("oraclecloud21.com", &["me-alrayyan-1", "me-dcc-doha-1"]),
    ("oraclecloud23.com", &["us-somerset-1", "us-thames-1"]),
    ("oraclecloud24.com", &["eu-crissier-1", "eu-dcc-zurich-1"]),
    ("oraclecloud26.com", &["me-abudhabi-3", "me-alain-1"]),
    ("oraclecloud29.com", &["me-abudhabi-2", "me-abudhabi-4"]),
    (
        "oraclecloud35.com",
        &["ap-chuncheon-2", "ap-seoul-2", "ap-suwon-1"],
    ),
    ("oraclecloud42.com", &["us-ashburn-2", "us-newark-1"]),
    ("oraclecloud51.com", &["eu-budapest-1"]),
    ("oraclecloud52.com", &["sa-riodejaneiro-1"]),
];

/// Returns the full name and the domain of a region, which may be given by its short name.
pub(super) fn resolve_region(name: &str) -> (String, &'static str) {
    let name = name.to_lowercase();
    let known = SHORT.iter().find(|(short, _)| *short == name);
    let region = known.map_or(name, |(_, region)| (*region).to_owned());
    let other = REALMS
        .iter()
        .find(|(_, regions)| regions.contains(&region.as_str()));
    let domain = other.map_or(COMMERCIAL, |(domain, _)| *domain);
    (region, domain)
}
