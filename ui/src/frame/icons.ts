// Paths of icons on a 16 × 16 grid, drawn as lines.

export const ICONS = {
  home: "M2 8l6-5 6 5M4 7v6h3v-4h2v4h3V7",
  query: "M2 12l4-5 3 3 5-7M2 14h12",
  alert: "M8 2l6.5 11.5h-13zM8 6.5v3.5M8 12v.1",
  rules: "M3 4h10M3 8h10M3 12h6",
  bell: "M4 11V7a4 4 0 018 0v4l1 1H3zM7 14h2",
  target: "M8 2a6 6 0 100 12A6 6 0 008 2zM8 5a3 3 0 100 6 3 3 0 000-6z",
  discovery: "M7 2a5 5 0 100 10A5 5 0 007 2zM11 11l3 3",
  queries: "M2 3h12v10H2zM5 6l2 2-2 2M8 10h3",
  storage: "M2 4c0-3 12-3 12 0v8c0 3-12 3-12 0zM2 4c0 3 12 3 12 0M2 8c0 3 12 3 12 0",
  cluster: "M8 2v4M4 10l4-4 4 4M3 10h3v3H3zM10 10h3v3h-3z",
  config: "M3 4h10M3 8h10M3 12h10M6 2.5v3M10 6.5v3M5 10.5v3",
  flag: "M4 14V2M4 3h8l-2 3 2 3H4",
  status: "M2 8h3l2-5 3 10 2-5h2",
  metrics: "M2 13h12M4 13V8M8 13V3M12 13V6",
  cardinality: "M3 3h10v3H3zM3 8h7v2H3zM3 12h4v1H3z",
  usage: "M8 2a6 6 0 106 6H8zM10.5 2.5a5 5 0 013 3h-3z",
  relabel: "M2 4h6l4 4-4 4H2zM5 8h.1",
  discards: "M3 5h10M6 5V3h4v2M4 5l1 9h6l1-9M6.5 8l3 3M9.5 8l-3 3",
  external: "M6 3H3v10h10v-3M9 3h4v4M13 3L7 9",
  menu: "M2 4h12M2 8h12M2 12h12",
  theme: "M8 2a6 6 0 100 12zM8 2a6 6 0 010 12",
  person: "M8 2.5a2.5 2.5 0 100 5 2.5 2.5 0 000-5zM3 14c0-6 10-6 10 0",
  close: "M4 4l8 8M12 4l-8 8",
  refresh: "M13 4v3h-3M12.5 7A5 5 0 103 9",
} as const;

export type IconName = keyof typeof ICONS;
