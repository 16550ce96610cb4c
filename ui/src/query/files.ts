// Files for the reader to keep.

export function download(name: string, type: string, content: string | Blob): void {
  const blob = typeof content === "string" ? new Blob([content], { type }) : content;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  // The browser has begun to read the file by then.
  setTimeout(() => { URL.revokeObjectURL(link.href); }, 10_000);
}
