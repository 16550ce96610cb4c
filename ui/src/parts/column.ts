// A column of a table.

export interface Column {
  id: string;
  label: string;
  // Explanation on hover, such as the name of the field in the API. Names a column without a label.
  title?: string;
  // CSS width; columns without one share what is left.
  width?: string;
  isNumeric?: boolean;
  // Which direction the first click on the head gives; columns without it cannot be sorted by.
  sort?: "ascending" | "descending";
}
