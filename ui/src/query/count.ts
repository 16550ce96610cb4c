// The number of results of an answer.

import type { QueryData } from "../api/types";

export const countOf = (data: QueryData) =>
  data.resultType === "scalar" || data.resultType === "string" ? 1 : data.result.length;
