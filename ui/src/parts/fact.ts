// A name and a value of a list of facts.

export interface Fact {
  name: string;
  value: string;
  // The field of the API or the metric, on hover.
  field?: string;
  // The value with all digits, on hover.
  exact?: string;
  tone?: "warn" | "bad";
}
