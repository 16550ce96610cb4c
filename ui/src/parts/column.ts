// A column of a table.

export interface Column {
  id: string;
  label: string;
  // Explanation on hover, such as the name of the field in the API. Names a column without a label.
  title?: string;
  // CSS width; columns without one share the remaining width.
  width?: string;
  isNumeric?: boolean;
  // Direction of the first click on the head; a column without it is not sortable.
  sort?: "ascending" | "descending";
}
