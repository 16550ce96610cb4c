// Requests without an expression, such as those for all label names, in words.

const WORDS: Record<string, string> = {
  series: "Request for series",
  labels: "Request for label names",
  label_values: "Request for label values",
  query_exemplars: "Request for exemplars",
  read: "Remote read",
  federate: "Federation",
  status: "Request for the status",
  targets: "Request for targets",
  rules: "Request for rules",
};

// `handler` is the kind of request as `/api/v1/status/active_queries` names it.
export const requestWords = (handler: string | undefined): string => WORDS[handler ?? ""] ?? "Request without an expression";
