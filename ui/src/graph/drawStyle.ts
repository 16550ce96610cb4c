// How a graph draws its series.

export const STYLES = ["lines", "points", "stacked", "share"] as const;
export type DrawStyle = (typeof STYLES)[number];
